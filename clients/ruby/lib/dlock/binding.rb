# frozen_string_literal: true

module Dlock
  # Whether the hold of a session is bound to a connection that is open. While it is not, the server may have released
  # the hold, so nothing is claimed of it.
  class Binding
    def initialize(session)
      @bound = session
      @session = session
    end

    def session? = @session

    def claims? = !@session || @bound

    def ended = @bound = false

    # The server has answered that the hold is bound to a new connection.
    def bound = @bound = true

    # Whether a failed command may still bind the hold to the connection that it was sent on. The end of that connection
    # would then release the hold.
    def doubtful?(error) = error.is_a?(Unanswered) && error.sent?
  end

  # The life of a named session: its heartbeats, and until when the session is certain. Times are milliseconds; nothing
  # here reads a clock.
  class Life
    # openings: how often the session was opened. timeout: how long it lasts after a heartbeat.
    attr_reader :openings, :timeout

    def initialize(now, timeout)
      @timeout = timeout
      @heart = Heartbeat.new
      @due = now
      @openings = @failures = 0
      # true: the next heartbeat opens the session. :open: an earlier one has opened it, but its answer was lost.
      @opens = true
      @state = :held
    end

    # Until when the session is certain. nil: it was never open.
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

    # Notes a heartbeat before it is sent. Returns its option: NX only opens the session, XX only keeps it open.
    def sends(now)
      @sent = now
      @number = @validity&.sends(now, @timeout)
      @heart.sends(@validity, now) if @number
      @due = nil if @number
      @opens == true ? "NX" : "XX"
    end

    # The answer: the session is open. Returns whether it was opened only now, so that the server has none of the
    # bindings.
    def ok(now)
      return false if passes(now) != :held

      opened, @opens = @opens, false
      @validity ? @validity.ok(@number) : begin_with(now)
      @openings += 1 if opened
      @failures = 0
      plan(now)
      opened ? true : false
    end

    # The answer: the server does not know the session or, with `open`, an earlier command has opened it.
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

    # The answer: an error that does not tell whether the session is open.
    def refused(now)
      @validity.refused(@number) if @number
      failed(now)
    end

    # The commands for holds that follow a heartbeat were not all done: the next heartbeat comes soon.
    def unfinished(now) = @due = [due, now + (@timeout / 30).clamp(10, 500)].min

    private

    def failed(now)
      @failures += 1
      # A session that was never open tries again after 20 ms, then twice as long each time, up to 250 ms.
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

  # Until when a hold of a named session is certain, in place of a Validity. The hold is as certain as the session: its
  # lease is three timeouts of the session or more, and the server renews the lease when a third of it has passed. A
  # server that was restarted has no bindings, so a hold that is not bound again is certain for no longer than it was.
  class Kept
    # How many timeouts of the session a lease has at least, unless a cap is shorter.
    LEASES = 3

    attr_reader :state, :wanted

    def initialize(life, sent, options)
      @life = life
      @wanted = options.lease
      @state = :held
      # No cap is earlier than the end of the lease: the server refuses a lease beyond the cap.
      @cap = sent + options.lease - Validity::MARGIN
      @most = options.max_hold && sent + options.max_hold - Validity::MARGIN
    end

    def until = [@life.until, @unbound, @cap, @most].compact.min

    def passes(now)
      @state = :lost if @state == :held && (!@life.claims?(now) || now >= self.until)
    end

    def claims?(now) = passes(now) != :lost && @state == :held

    def unbound? = !@unbound.nil?

    # The server does not have the hold bound to the session, or may not have it. `certain`: until when the session was
    # certain before that.
    def unbind(certain) = @unbound ||= certain

    # The server has answered that it has bound the hold. A hold that is over stays lost.
    def bound(now)
      @unbound = nil if claims?(now)
    end

    # Whether a cap may end the hold before `at`, so that the server must be asked for the cap.
    def cap_near?(at) = !@told && @cap < at

    # The server's answer about the cap: `left` ms after the server was `asked`; nil: there is none.
    def capped(asked, left)
      @told = true
      @cap = left && asked + left - Validity::MARGIN
    end

    # A cap ends the hold at this time.
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
