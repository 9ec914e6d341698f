# frozen_string_literal: true

require "securerandom"

module Dlock
  # A heartbeat that keeps all locks of a program, over a connection of its own (docs/sessions.md). All threads may share it; a
  # forked process has no part in it. The first lock opens it.
  class Session
    # Commands of one exchange: few enough that a connection takes them without waiting.
    AT_ONCE = 100

    attr_reader :id, :life

    # `timeout`: the server frees the locks this many seconds after the last heartbeat. `manual`: heartbeats are sent only while
    # the program calls `beat`. `on_loss` is called with the session, in a thread.
    def initialize(client, timeout: 10, manual: false, on_loss: nil)
      Options.wrong("timeout must be 0.3 to 3600 seconds, not #{timeout}") unless Options.millis(:timeout, timeout, 300) <= 3_600_000
      Options.yes_or_no(:manual, manual)
      Options.callable(:on_loss, on_loss)
      @client = client
      @manual = manual
      @on_loss = on_loss
      @id = SecureRandom.uuid
      @pid = Process.pid
      @life = Life.new(Dlock.now, Options.millis(:timeout, timeout, 300))
      @holds = {}
      @owed = []
      @mutex = Mutex.new
      @changed = ConditionVariable.new
      @beaten = true
    end

    def inspect = "#<Dlock::Session #{@id}>"

    # Whether it is open, as far as is known here.
    def open? = @pid == Process.pid && @life.claims?(Dlock.now)

    # Whether no heartbeat was confirmed for its timeout: its locks are lost with it. Open another one.
    def lost? = @pid != Process.pid || @life.passes(Dlock.now) == :lost

    # Says with `manual` that the program is alive. Sends nothing itself and does not wait.
    def beat
      @mutex.synchronize do
        @beaten = true
        @changed.broadcast if Dlock.now >= @life.due
      end
    end

    # Ends it, and frees all its locks with one command.
    def close
      return if @pid != Process.pid || @life.passes(Dlock.now) != :held

      keeps = @mutex.synchronize do
        @life.release
        @changed.broadcast
        @holds.any?
      end
      @client.insist(Dlock.now + Limits::STEP + Limits::LATE, ["DLOCK.SESSION", @id, "CLOSE"]) if @thread
    rescue Unanswered => e
      raise Unreachable, "the session has no answer to its end: #{e.message}", cause: e if keeps
    end

    # --- For acquisitions and holds.

    def of?(client) = @client.equal?(client)

    # Waits until it is open, and returns how often it was opened. Raises Unanswered if no server says so in time.
    def ready(ends)
      @mutex.synchronize do
        start
        until @life.claims?(now = Dlock.now)
          state!
          raise @refused.explained("the session") if @refused
          raise Unanswered, "the session is not open: #{@failure&.message || "no answer in time"}" if now >= ends

          @changed.wait(@mutex, (ends - now).clamp(1, 1000) / 1000.0)
        end
        @life.openings
      end
    end

    # The server does not know it. The next heartbeat finds out.
    def missing
      @mutex.synchronize do
        @life.hurry(Dlock.now)
        @beaten = true
        @changed.broadcast
      end
    end

    # Keeps a hold. `openings`: how often the session had been opened before the grant. If it has been opened again
    # since, the next heartbeat binds the hold.
    def keep(hold, openings)
      unbound = @mutex.synchronize do
        @holds[hold] = true
        @changed.broadcast if hold.until < @life.until
        @life.openings != openings
      end
      hold.kept { |kept| kept.unbind(@life.until) } && missing if unbound
    end

    def leave(hold) = @mutex.synchronize { @holds.delete(hold) }

    # Releases that a server must still answer: the session would keep these holds.
    def owe(commands) = @mutex.synchronize { @owed << commands if @life.passes(Dlock.now) == :held }

    def current? = @thread == Thread.current

    def wake = @mutex.synchronize { @changed.broadcast }

    # The part of a session that a hold knows.
    Place = Struct.new(:session, :hold, :openings) do
      def start = session.keep(hold, openings)

      def wake
        hold.ended? ? session.leave(hold) : session.wake
        hold.wake
      end

      def current? = session.current?
    end

    private

    def state!
      raise Released, "the session belongs to process #{@pid}" if @pid != Process.pid

      case @life.passes(Dlock.now)
      when :lost then raise Lost, "the session is lost: no heartbeat was confirmed within its timeout"
      when :released then raise Released, "the session was closed"
      end
    end

    def start
      state!
      return if @thread&.alive?

      @refused = nil
      @thread = Dlock.thread { run }
      @thread.name = "dlock session"
    end

    def run
      while @life.passes(Dlock.now) == :held && (@life.until || @refused.nil?)
        tell_late
        beats? ? round : rest
      end
      tell(@mutex.synchronize { @holds.keys.tap { @holds.clear } })
      Dlock.thread { @on_loss.call(self) } if @on_loss && @life.passes(Dlock.now) == :lost
    ensure
      @wire&.close
    end

    def beats?
      @mutex.synchronize { Dlock.now >= @life.due && (!@manual || @beaten).tap { |beats| @beaten = false if beats } }
    end

    def rest
      @mutex.synchronize do
        ends = [@life.until, *@holds.each_key.map(&:until)]
        ends << @life.due if !@manual || @beaten
        @changed.wait(@mutex, (ends.compact.min - Dlock.now).clamp(1, 1000) / 1000.0) if @life.passes(Dlock.now) == :held
      end
    end

    # Loses the holds that are over.
    def tell_late
      late = holds.select { |hold| hold.kept { |kept| kept.passes(Dlock.now) || kept.state == :lost } }
      lose(late) unless late.empty?
    end

    # Forgets lost holds, and releases them: the server may still have one, which the session would keep.
    def lose(some)
      @mutex.synchronize do
        some.each { |hold| @holds.delete(hold) }
        @owed.concat(some.map(&:releases))
      end
      tell(some)
    end

    # Tells the losses of all that were not released. Heartbeats do not wait for callbacks.
    def tell(some)
      lost = some.select { |hold| hold.kept { |kept| kept.gone || kept.state == :lost } }
      lost.each { |hold| hold.tells? ? Dlock.thread { hold.tell_loss } : hold.tell_loss }
    end

    def holds = @mutex.synchronize { @holds.keys }

    # A heartbeat, and what follows from its answer.
    def round
      return unless beat_once(holds.reject { |hold| hold.kept(&:unbound?) }).is_a?(Integer)

      bind(holds.select { |hold| hold.kept(&:unbound?) })
      learn
      pay
    rescue Error, ArgumentError => e
      failed(e)
    end

    # Returns how many holds the server has bound; else something that is no number. `known`: those that it should have.
    def beat_once(known)
      option = @mutex.synchronize { @life.sends(Dlock.now) }
      reply, = exchange(["DLOCK.SESSION", @id, "PX", @life.timeout, option])
      case reply
      when Integer then confirmed(known, reply)
      when nil then unknown(open: true)
      else
        refused(reply) unless reply.code == "NOSESSION"
        unknown
      end
      reply
    rescue Unanswered
      @mutex.synchronize { @life.cut(Dlock.now) }
      raise
    end

    def confirmed(known, bound)
      before = @life.until
      doubt(known & holds, bound, before)
      unbound = @mutex.synchronize do
        opened = @life.ok(Dlock.now)
        @failure = @refused = nil
        @beaten ||= @life.until.nil? # The answer came too late.
        @changed.broadcast
        opened && before ? @holds.keys : []
      end
      unbound.each { |hold| hold.kept { |kept| kept.unbind(before) } }
    end

    # Marks holds as unbound if the server has bound fewer: nobody knows yet which ones it lacks. They are certain only
    # for as long as they were before this heartbeat.
    def doubt(known, bound, certain)
      known.each { |hold| hold.kept { |kept| kept.unbind(certain) } } if bound < known.sum(&:size)
    end

    def unknown(**open)
      @mutex.synchronize do
        @life.unknown(Dlock.now, **open)
        @beaten = true
      end
    end

    def refused(error)
      @mutex.synchronize do
        @life.refused(Dlock.now)
        @refused = error unless error.elsewhere? || error.paused?
        @changed.broadcast
      end
      raise error
    end

    # A round has failed. With `manual`, no heartbeat repeats it before the program calls `beat` again: it would keep
    # the session of a program that hangs for longer. A session that was never open keeps nothing.
    def failed(error)
      @wire&.close
      @wire = nil
      @client.distrust
      @mutex.synchronize do
        @failure = error
        @beaten ||= @life.until.nil?
        @life.unfinished(Dlock.now)
      end
    end

    # Sends commands on the connection of the session: a heartbeat waits behind nothing that the program does.
    def exchange(*commands)
      now = Dlock.now
      ends = now + Limits::STEP + Limits::LATE
      ends = [now + Heartbeat.answer_within(@life.timeout), @life.until].min if @life.until
      target = @client.target(ends)
      @wire&.close unless @wire&.usable? && @wire.target == target
      @wire = Wire.new(target, ends) if @wire.nil? || @wire.closed?
      @wire.exchange(ends, *commands)
    end

    # Sends commands for holds, some at a time, and yields each with its replies. Even a round that is late makes one
    # exchange: otherwise a slow program, whose rounds are all late, would bind nothing.
    def each_of(some, commands)
      some.each_slice(AT_ONCE).with_index do |piece, number|
        return @life.unfinished(Dlock.now) if number.positive? && Dlock.now >= @life.due

        asked = Dlock.now
        replies = exchange(*piece.flat_map(&commands))
        piece.each { |hold| yield hold, replies.shift(hold.size), asked }
      end
    end

    # Binds holds again. Those that the server does not have are lost.
    def bind(some)
      each_of(some, ->(hold) { hold.binds(@id) }) do |hold, replies|
        case reply = Names.together(replies)
        when Integer then hold.kept { |kept| kept.bound(Dlock.now) }
        when nil then lose([hold])
        else reply.code == "WRONGTYPE" ? lose([hold]) : @life.unfinished(Dlock.now)
        end
      end
    end

    # Asks for the caps of holds that may soon end at one: within two timeouts. A user who may not ask learns of such an
    # end by a heartbeat.
    def learn
      near = Dlock.now + (2 * @life.timeout)
      each_of(holds.select { |hold| hold.kept { |kept| kept.cap_near?(near) } }, :info.to_proc) do |hold, replies, asked|
        errors = replies.grep(ServerError)
        hold.kept { |kept| kept.capped(asked, nil) } if errors.any? { |error| error.code == "NOPERM" }
        next unless errors.empty?

        found = replies.map { |reply| of_token(reply, hold.token) }
        found.include?(nil) ? lose([hold]) : hold.kept { |kept| kept.capped(asked, found.filter_map { |each| each["cap"] }.min) }
      end
    end

    # The hold with a token in a reply to INFO. nil: there is none.
    def of_token(reply, token)
      holds = (reply || []).each_slice(2).to_h.fetch("holds", [])
      holds.map { |each| each.each_slice(2).to_h }.find { |each| each["token"] == token }
    end

    def pay
      until (commands = @mutex.synchronize { @owed.first }).nil?
        error = exchange(*commands).grep(ServerError).find { |each| each.elsewhere? || each.paused? }
        raise error if error

        @mutex.synchronize { @owed.shift }
      end
    end
  end
end
