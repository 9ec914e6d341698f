# frozen_string_literal: true

require "securerandom"
require "socket"

module Dlock
  # The options of a caller. Times are seconds outside and milliseconds inside. `session`: whether the session of the
  # connection keeps the lock; `named`: a Session.
  Options = Struct.new(:mode, :slots, :lease, :wait, :renew, :session, :named, :owner, :outage, :replicas, :replicas_timeout,
                       :max_hold, :on_loss, keyword_init: true)
  class Options
    COMMANDS = { exclusive: "DLOCK.ACQUIRE", read: "DLOCK.RLOCK", write: "DLOCK.WLOCK" }.freeze
    COUNTER = Mutex.new

    def self.from(mode: :exclusive, slots: nil, lease: 30, wait: nil, renew: true, session: false, owner: nil, outage: 30,
                  replicas: 0, replicas_timeout: 1, max_hold: nil, on_loss: nil)
      must_be(:mode, ":exclusive, :read or :write", mode) unless COMMANDS.key?(mode)
      must_be(:slots, "a number from 1", slots) unless slots.nil? || slots?(slots)
      wrong("a semaphore has no mode") if slots && mode != :exclusive
      must_be(:replicas, "a number from 0", replicas) unless replicas.is_a?(Integer) && replicas >= 0
      named, session = session, false if session.is_a?(Session)
      { renew: renew, session: session }.each { |word, value| yes_or_no(word, value) }
      wrong("a session keeps its locks, whether or not renew is false") if named && !renew
      callable(:on_loss, on_loss)
      least = session || named ? 300 : 3
      new(mode: mode, slots: slots, lease: millis(:lease, lease, least), renew: renew, session: session, named: named,
          wait: wait && millis(:wait, wait, 0), owner: label(owner), outage: millis(:outage, outage, 1),
          replicas: replicas, replicas_timeout: millis(:replicas_timeout, replicas_timeout, 1),
          max_hold: max_hold && millis(:max_hold, max_hold, least), on_loss: on_loss).lengthened
    end

    def self.slots?(slots) = slots.is_a?(Integer) && slots.between?(1, 2**32 - 1)

    def self.yes_or_no(word, value)
      must_be(word, "true or false", value) unless [true, false].include?(value)
    end

    def self.callable(word, value)
      must_be(word, "an object with the method call", value) unless value.nil? || value.respond_to?(:call)
    end

    def self.millis(word, seconds, least)
      must_be(word, "a number of seconds", seconds) unless seconds.is_a?(Numeric) && seconds.real?
      ms = seconds.to_f * 1000
      wrong("#{word} must be #{least} ms to 365 days, not #{seconds} s") unless ms.between?(least, 31_536_000_000)
      ms.ceil
    end

    def self.label(owner)
      return if owner.nil?

      must_be(:owner, "a String of 1 to 47 bytes", owner) unless owner.is_a?(String) && owner.bytesize.between?(1, 47)
      wrong("owner is in #{owner.encoding}, which does not contain ASCII") unless owner.encoding.ascii_compatible?
      wrong("owner must have no control characters, unlike #{owner.inspect}") if owner.b.match?(/[\x00-\x1f\x7f]/n)
      owner
    end

    def self.name_of(name)
      must_be("the name of a lock", "a String or a Symbol", name) unless [String, Symbol].any? { |c| c === name }
      wrong("the name of a lock is empty") if name.empty?
      name.to_s
    end

    # The message shows simple values only: the contents of other objects may be long, or secret.
    def self.must_be(word, kind, value)
      simple = [String, Symbol, Numeric, NilClass, TrueClass, FalseClass].any? { |type| type === value }
      wrong("#{word} must be #{kind}, not #{simple ? value.inspect : "of class #{value.class}"}")
    end

    def self.wrong(message) = raise(ArgumentError, "dlock: #{message}")

    # Makes the lease at least three times the session's timeout, or the cap if that is shorter, so that the hold
    # outlasts the time for which the client believes in it.
    def lengthened
      self.lease = [lease, [named.life.timeout * Kept::LEASES, max_hold].compact.min].max if named
      self
    end

    # The words of an acquiring command or a renewal that bind the hold to a session.
    def binds
      return ["SESSIONID", named.id] if named

      session ? ["SESSION"] : []
    end

    # An owner that nobody else has: HOST:PID:N or the label, and a random end.
    def new_owner
      host = Socket.gethostname.gsub(/[^!-9;-~]/, "?")[0, 20]
      "#{owner || "#{host}:#{Process.pid}:#{Options.count}"[0, 47]}:#{SecureRandom.hex(8)}"
    end

    def self.count = COUNTER.synchronize { @count = (@count || 0) + 1 }

    # The acquiring command.
    def acquire(names, owner, request, block)
      words = names.acquire(self, owner) + ["PX", lease, "REQUEST", request, *binds]
      words.push("MAXHOLD", max_hold) if max_hold
      block ? words.push("BLOCK", block) : words
    end
  end
end
