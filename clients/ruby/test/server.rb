# frozen_string_literal: true

# A server for a test: the one that the runner has started.

require "redis"
require "socket"
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

  # A list that always counts as empty: with it as `lost`, `losing` loses the reply to every command with the word, and
  # not only the first one.
  Always = Class.new(Array) { def empty? = true }

  # A list that counts as empty until it has two entries: `losing` loses the first two replies.
  FirstTwo = Class.new(Array) { def empty? = size < 2 }

  # The `instead` of a relay that sends nothing instead of a reply, and loses the rest of the connection in both
  # directions.
  SILENCE = ""

  # A relay to the server that loses the reply to the next command with this word, and closes the connection or sends
  # the reply `instead`. With `refused`, the server does not get the command. Yields the relay's URL, and the list
  # `lost`, which gets an entry for each lost reply: without `instead`, for a command that the server does not get, the
  # command.
  def losing(word, lost = [], instead: nil, refused: false)
    TCPServer.open("127.0.0.1", 0) do |listening|
      serving = Thread.new { loop { relay(listening.accept, TCPSocket.new(HOST, PORT), word, lost, instead, refused) } }
      yield "redis://127.0.0.1:#{listening.addr[1]}", lost
    ensure
      serving.kill
    end
  end

  def executed(server, text)
    server.write(text)
    server.readpartial(65_536)
  end

  # Lets the server execute a command that it did not get.
  def arrives(text)
    TCPSocket.open(HOST, PORT) { |server| assert_match(/\A[:*]/, executed(server, text), "it is granted") }
  end

  def relay(client, server, word, lost, instead, refused)
    Thread.new do
      loop do
        IO.select([client, server]).first.each do |from|
          text = from.readpartial(65_536)
          if from == client && lost.empty? && text.include?(word)
            lost << (refused ? instead || text : executed(server, text))
            raise EOFError unless instead

            client.read if instead == SILENCE # until the client ends the connection
            next client.write(instead)
          end
          (from == client ? server : client).write(text)
        end
      end
    rescue IOError, SystemCallError
      [client, server].each(&:close)
    end
  end

  # A server that answers everything with this error after `after` seconds, as an agent that first asks its servers.
  # Yields the server's URL.
  def refusing(error, after: 0)
    TCPServer.open("127.0.0.1", 0) do |listening|
      serving = Thread.new { loop { refuse(listening.accept, error, after) } }
      yield "redis://user:confidential@127.0.0.1:#{listening.addr[1]}"
    ensure
      serving.kill
    end
  end

  def refuse(client, error, after)
    Thread.new do
      while (line = client.gets)
        Integer(line[1..]).times { client.read(Integer(client.gets[1..]) + 2) }
        sleep after
        client.write("-#{error}\r\n")
      end
    rescue IOError, SystemCallError
      client.close
    end
  end

  # Fails unless a server refuses a lock. On a busy machine its answer may come too late, and counts as none: then the
  # server is asked again.
  def refused
    ends ||= Dlock.now + 60_000
    yield
    flunk "it was granted"
  rescue Dlock::Unreachable
    Dlock.now < ends ? retry : raise
  rescue Dlock::NotGranted
    pass
  end

  # Waits for a condition, on a busy machine for long.
  def soon(what, seconds = 60)
    ends = Dlock.now + seconds * 1000
    until yield
      flunk("not in time: #{what}") if Dlock.now > ends
      sleep 0.005
    end
  end

  def waiters(number, key = self.key) = soon("#{number} wait") { info(key).fetch("waiters", 0) == number }

  def free(key = self.key) = soon("#{key} is free") { info(key).empty? }
end
