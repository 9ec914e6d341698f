# frozen_string_literal: true

require "io/wait"
require "openssl"
require "socket"

module Dlock
  def self.now = Process.clock_gettime(CLOCK, :float_millisecond)

  # The clock that goes on while the machine is suspended, where the system has one.
  CLOCK = defined?(Process::CLOCK_BOOTTIME) ? Process::CLOCK_BOOTTIME : Process::CLOCK_MONOTONIC

  # A connection to a server. `ends` is the time at which a step gives up.
  class Wire
    # The connections of this process.
    ALL = ObjectSpace::WeakMap.new

    # The value is the connection, too: Ruby 3.1 skips pairs whose value is garbage, but not those whose key is garbage.
    def self.remember(wire) = ALL[wire] = wire

    # Closes a forked child's copies of the connections of its parent, without a word to the server.
    def self.forked = ALL.each_key(&:drop)

    attr_reader :target, :pid

    def initialize(target, ends)
      @target = target
      @pid = Process.pid
      @buffer = String.new(encoding: Encoding::BINARY)
      @unread = 0
      Wire.remember(self)
      connect(ends)
      greet(ends)
    rescue Exception
      close
      raise
    end

    # Sends commands and returns their replies; errors of the server are values.
    def exchange(ends, *commands)
      write(ends, *commands)
      commands.map { read(ends) }
    end

    def write(ends, *commands)
      text = commands.size == 1 ? pack(commands.first) : commands.map { |words| pack(words) }.join
      @unread += commands.size
      until text.empty?
        sent = @io.write_nonblock(text, exception: false)
        sent.is_a?(Integer) ? text = text.byteslice(sent..) : await(sent, ends)
      end
    rescue SystemCallError, IOError, OpenSSL::SSL::SSLError => e
      broken(e)
    end

    def read(ends)
      @ends = ends
      parse.tap { @unread -= 1 }
    rescue SystemCallError, IOError, OpenSSL::SSL::SSLError => e
      broken(e)
    end

    # Whether within this time there is a reply to read, or the server has closed the connection. After a TLS record
    # that brings neither, the wait goes on. Data on `wake` ends the wait.
    def readable?(milliseconds, wake = nil)
      ends = Dlock.now + milliseconds
      while @buffer.empty?
        got = @io.read_nonblock(16_384, exception: false)
        return true if got.nil?
        break @buffer << got if got.is_a?(String)
        return false if milliseconds.zero?

        ready, = IO.select([@socket, wake].compact, nil, nil, [ends - Dlock.now, 0].max / 1000.0)
        return false unless ready&.include?(@socket)
      end
      true
    rescue SystemCallError, IOError, OpenSSL::SSL::SSLError
      true
    end

    # Whether the connection is open, of this process, has all its replies, and none said that the server is no primary.
    def clean? = !@replica && @unread.zero? && @pid == Process.pid && !closed? && @buffer.empty?

    # Whether another command may be sent: the server has not closed the connection either.
    def usable? = clean? && !readable?(0)

    # Sends the last commands, even behind one that still waits, and ends the sending side.
    def part(*commands)
      commands.each { |words| @io.write_nonblock(pack(words)) }
      @socket.shutdown(Socket::SHUT_WR)
    rescue SystemCallError, IOError, OpenSSL::SSL::SSLError
      close
    end

    # Waits until the server has closed the connection.
    def await_end(ends)
      until closed?
        return if Dlock.now >= ends || @socket.wait_readable([ends - Dlock.now, 1].max / 1000.0).nil?
        return if @socket.read_nonblock(4096, exception: false).nil?
      end
    rescue SystemCallError, IOError
      nil
    ensure
      close
    end

    # Shuts the socket down before it is closed: a thread that waits for a reply notices that.
    def close
      @socket&.shutdown unless closed?
      drop
    rescue SystemCallError, IOError
      drop
    end

    # Closes this process's copy of the socket. The connection ends with the last copy.
    def drop
      @socket&.close
    rescue SystemCallError, IOError
      nil
    end

    def closed? = @socket.nil? || @socket.closed?

    private

    def broken(error)
      close
      raise Unanswered.new("#{error.class}: #{error.message}", sent: true)
    end

    def pack(words)
      text = String.new("*#{words.size}\r\n", capacity: 256, encoding: Encoding::BINARY)
      words.each do |word|
        word = word.to_s
        word = word.b unless word.ascii_only?
        text << "$" << word.bytesize.to_s << "\r\n" << word << "\r\n"
      end
      text
    end

    def connect(ends)
      error = nil
      addresses(ends).each do |address|
        left = ends - Dlock.now
        break if left <= 0

        @socket = address.connect(timeout: left / 1000.0)
        break
      rescue SystemCallError => e
        error = e
      end
      raise Unanswered, error&.message || "no connection in time" unless @socket

      @socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1) unless @target.path
      @socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_KEEPALIVE, true)
      @io = @target.tls ? encrypt(ends) : @socket
    end

    # A resolver cannot be interrupted, so another thread asks it.
    def addresses(ends)
      return [Addrinfo.unix(@target.path)] if @target.path

      found = Dlock.beside do
        Addrinfo.getaddrinfo(@target.host, @target.port, nil, :STREAM)
      rescue SocketError => e
        e
      end
      raise Unanswered, "#{@target.host} has no address in time" unless found.join([ends - Dlock.now, 1].max / 1000.0)
      raise Unanswered, "#{@target.host}: #{found.value.message}" if found.value.is_a?(SocketError)

      found.value
    end

    def encrypt(ends)
      tls = OpenSSL::SSL::SSLSocket.new(@socket, @target.tls)
      tls.hostname = @target.host
      until (step = tls.connect_nonblock(exception: false)) == tls
        await(step, ends)
      end
      tls.post_connection_check(@target.host) unless @target.tls.verify_mode == OpenSSL::SSL::VERIFY_NONE
      tls
    rescue OpenSSL::SSL::SSLError, SystemCallError => e
      raise Unanswered, "TLS: #{e.message}"
    end

    def greet(ends)
      first = []
      first << ["AUTH", *[@target.username, @target.password].compact] if @target.password
      first << ["SELECT", @target.db] unless @target.db.zero?
      first << ["CLIENT", "SETNAME", @target.name] if @target.name
      return if first.empty?

      wrong = exchange(ends, *first).find { |reply| reply.is_a?(ServerError) }
      raise wrong.elsewhere? ? Unanswered.new(wrong.message) : wrong if wrong
    rescue Unanswered => e
      raise Unanswered.new(e.message, silent: e.silent) # Nothing but the greeting was sent.
    end

    # Waits until the socket can be written or, for any other `side`, read.
    def await(side, ends)
      left = [ends - Dlock.now, 0].max / 1000.0
      in_time = side == :wait_writable ? @socket.wait_writable(left) : @socket.wait_readable(left)
      raise Unanswered.new("no answer in time", sent: true, silent: true) unless in_time
    end

    def fill
      got = @io.read_nonblock(16_384, exception: false)
      raise EOFError, "the server closed the connection" if got.nil?

      got.is_a?(String) ? @buffer << got : await(got, @ends)
    end

    def line
      fill until (at = @buffer.index("\r\n"))
      @buffer.slice!(0, at + 2).chomp
    end

    def parse
      text = line
      value = text.byteslice(1..)
      case text[0]
      when ":" then value.to_i
      when "+" then value
      when "-" then ServerError.new(value.force_encoding("UTF-8").scrub).tap { |error| @replica ||= error.replica? }
      when "$" then bulk(value.to_i)
      when "*" then value.to_i.negative? ? nil : Array.new(value.to_i) { parse }
      else raise IOError, "this is no reply of a server: #{text[0, 20].inspect}"
      end
    end

    def bulk(size)
      return if size.negative?

      fill until @buffer.bytesize >= size + 2
      @buffer.slice!(0, size + 2).byteslice(0, size)
    end
  end

  # A forked child closes its copies of its parent's connections, so that a session ends with the process that has it.
  # Process.daemon forks without _fork.
  module Forking
    def _fork = super.tap { |pid| Wire.forked if pid.zero? }

    def daemon(...) = super.tap { Wire.forked }
  end
  Process.singleton_class.prepend(Forking)
end
