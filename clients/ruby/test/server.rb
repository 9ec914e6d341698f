# frozen_string_literal: true

# A server for a test: the one that the runner has started.

require "redis"
require_relative "../lib/dlock"

HOST = ENV.fetch("DLOCK_TEST_HOST")
PORT = Integer(ENV.fetch("DLOCK_TEST_PORT"))
URL = "redis://#{HOST}:#{PORT}"

# The common part of the tests.
module OnServer
  def redis = @redis ||= Redis.new(host: HOST, port: PORT)

  def locks(**options) = Dlock.new(redis, **options)

  def key = "ruby:#{self.class.name}:#{name}"

  def info(key = self.key) = redis.call("DLOCK.INFO", key)&.each_slice(2)&.to_h || {}

  # Waits for a condition.
  def soon(what, seconds = 10)
    ends = Dlock.now + seconds * 1000
    until yield
      flunk("not in time: #{what}") if Dlock.now > ends
      sleep 0.005
    end
  end

  def waiters(number, key = self.key) = soon("#{number} wait") { info(key).fetch("waiters", 0) == number }

  def free(key = self.key) = soon("#{key} is free") { info(key).empty? }
end
