# frozen_string_literal: true

# Locks of the dlock module of Redis and Valkey.
module Dlock
  # Returns a Client for locks on the server of `redis`. The arguments are those of Client.new.
  def self.new(redis, **defaults) = Client.new(redis, **defaults)

  # Runs work in the background. A program that ends waits for such work, for 2 s at most. Returns nil if the system has no
  # room for a thread.
  def self.behind(&work)
    @at_exit ||= at_exit do
      ends = now + 2000
      Thread.list.each { |each| each.join([ends - now, 0].max / 1000.0) if each[:dlock_behind] }
    end
    thread(&work).tap { |thread| thread[:dlock_behind] = true }
  rescue ThreadError
    nil
  end

  # Starts a thread for a question that cannot be interrupted. Raises Unanswered if none can be started.
  def self.beside(&work)
    thread(&work)
  rescue ThreadError => e
    raise Unanswered, e.message
  end

  # Starts a thread that takes interrupts at once. A new thread defers the interrupts that its creator defers, and a
  # program ends only when all of its threads have taken the interrupt that ends them.
  def self.thread(&work) = Thread.new { Thread.handle_interrupt(Object => :immediate, &work) }

  # Keeps the error of a release with the exception that left the block. The exception is raised, not the error.
  def self.attach(failure, error) = failure.frozen? ? nil : failure.instance_variable_set(:@dlock_release, error)

  # Returns the error of a release that failed while this exception left the block, or nil.
  def self.release_error(failure) = failure.instance_variable_get(:@dlock_release)
end

require_relative "dlock/errors"
require_relative "dlock/validity"
require_relative "dlock/heartbeat"
require_relative "dlock/alarm"
require_relative "dlock/limits"
require_relative "dlock/attempt"
require_relative "dlock/binding"
require_relative "dlock/options"
require_relative "dlock/names"
require_relative "dlock/profile"
require_relative "dlock/wire"
require_relative "dlock/acquisition"
require_relative "dlock/hold"
require_relative "dlock/session"
require_relative "dlock/client"
