# frozen_string_literal: true

module Dlock
  # Whether a connection keeps the hold of its session. While none does, the server may have released the hold, which
  # then claims nothing.
  class Binding
    def initialize(session)
      @bound = session
      @session = session
    end

    def session? = @session

    def claims? = !@session || @bound

    def ended = @bound = false

    # The answer that a new connection keeps the hold.
    def bound = @bound = true

    # Whether a failed command may still bind the hold to the connection that it was sent on. The end of that connection
    # would then release the hold.
    def doubtful?(error) = error.is_a?(Unanswered) && error.sent?
  end

  # The life of a named session: its heartbeats, and until when it is certain. Times are milliseconds; nothing here reads a
  # clock.
  class Life
    attr_reader :openings, :timeout

    def initialize(now, timeout)
      @timeout = timeout
      @heart = Heartbeat.new
      @due = now
      @openings = @failures = 0
      @opens = true
      @state = :held
    end

    # nil: the session was never open.
    def until = @validity&.until

    def claims?(now) = passes(now) == :held && !@validity.nil?

    # Returns :held (also before the session was open), :lost or :released.
    def passes(now)
      @state = :lost if @state == :held && @validity && !@validity.claims?(now)
      @state
    end

    def release = @state == :held && @state = :released

    # When the next heartbeat is due.
    def due = @due || @heart.at

    # The next heartbeat is due now.
    def hurry(now) = @due = [due, now].min

    # Notes a heartbeat before it is sent. Returns its option: NX opens, XX does not.
    def sends(now)
      @sent = now
      @number = @validity&.sends(now, @timeout)
      @heart.sends(@validity, now) if @number
      @due = nil if @number
      @opens == true ? "NX" : "XX"
    end

    # The answer: the session is open. Returns whether it was opened only now, so that the server has none of the bindings.
    def ok(now)
      return false if passes(now) != :held

      opened, @opens = @opens, false
      @validity ? @validity.ok(@number) : begin_with(now)
      @openings += 1 if opened
      @failures = 0
      plan(now)
      opened ? true : false
    end

    # The answer that the server does not know the session, or (`open`) that an earlier command has opened it.
    def unknown(now, open: false)
      @validity&.refused(@number)
      @opens = open ? :open : true
      @due = now
    end

    # No answer came.
    def cut(now)
      @validity.cut(@number) if @number
      failed(now)
    end

    # The answer is an error about something else.
    def refused(now)
      @validity.refused(@number) if @number
      failed(now)
    end

    # The work behind a heartbeat was not done: the next one comes soon.
    def unfinished(now) = @due = [due, now + (@timeout / 30).clamp(10, 500)].min

    private

    def failed(now)
      @failures += 1
      return @due = now + [10 * 2**[@failures, 5].min, 250].min unless @validity

      @due = nil
      @heart.failed(@validity, now)
    end

    def begin_with(now)
      found = Validity.new(now, @sent, @timeout)
      @validity = found if found.claims?(now)
    end

    def plan(now)
      return @due = now unless @validity # The answer came too late.

      @due = nil
      @heart.ok(@validity, now, @sent)
    end
  end

  # Until when a hold of a named session is certain, in place of a Validity. It is as certain as the session: the lease
  # is three times the timeout, and the server renews it when a third has passed. A server that was restarted has no
  # bindings, so a hold that is not bound again is certain for no longer than it was.
  class Kept
    LEASES = 3

    attr_reader :state, :wanted

    def initialize(life, sent, options)
      @life = life
      @wanted = options.lease
      @state = :held
      # No cap is earlier: the server refuses a lease beyond it.
      @cap = sent + options.lease - Validity::MARGIN
      @most = options.max_hold && sent + options.max_hold - Validity::MARGIN
    end

    def until = [@life.until, @unbound, @cap, @most].compact.min

    def passes(now)
      @state = :lost if @state == :held && (!@life.claims?(now) || now >= self.until)
    end

    def claims?(now) = passes(now) != :lost && @state == :held

    def unbound? = !@unbound.nil?

    # The server does not have it bound. `certain`: until when the session was certain.
    def unbind(certain) = @unbound ||= certain

    def bound = @unbound = nil

    # Whether a cap may end the hold before then, so that the server must be asked for it.
    def cap_near?(at) = !@told && @cap < at

    # The server's answer about the cap: ms from when it was asked, or nil for none.
    def capped(asked, left)
      @told = true
      @cap = left && asked + left - Validity::MARGIN
    end

    def at_most(at) = capped(at, Validity::MARGIN)

    def gone = @state == :held && @state = :lost

    def release = @state == :held && @state = :released

    # --- The commands of the caller. They change the lease, but the session decides until when the hold is certain.

    def lease = @wanted

    def sends(now, lease)
      @wanted = lease
      now
    end

    def asks(now) = now

    def ok(number) = number

    def cut(_number) = nil

    def refused(number) = number

    def left(number, left) = capped(number, left)
  end
end
