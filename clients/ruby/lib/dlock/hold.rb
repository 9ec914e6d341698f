# frozen_string_literal: true

module Dlock
  # The lock of one acquisition. All threads of its process may use it; a forked process has no part in it.
  class Hold
    attr_reader :owner, :token, :slot

    # `open`: whether a copy of the request, or of a renewal, got no answer. `copied`: whether one of the request did.
    def initialize(client, names, options, owner:, token:, slot:, sent:, wire:, open:, cap:, copied:)
      @client = client
      @names = names
      @options = options
      @owner = owner
      @token = token
      @slot = slot
      @wire = wire
      @copied = copied
      @pid = Process.pid
      @mutex = Mutex.new
      @changed = ConditionVariable.new
      named = options.named
      @validity = named ? Kept.new(named.life, sent, options) : Validity.new(Dlock.now, sent, options.lease, open: open)
      @binding = Binding.new(options.session)
      @heart = Heartbeat.new
      @heart.ok(@validity, Dlock.now, sent)
      limit(cap) if cap
    end

    # Starts to keep the hold. The acquisition has to store the hold first: if an interrupt came before that, the hold
    # would be kept and nobody would release it. `openings`: how often its named session had been opened when the lock
    # was asked for.
    def keep(openings)
      @keeper = @options.named ? Session::Place.new(@options.named, self, openings) : keeper
      @keeper&.start
    end

    def inspect = "#<Dlock::Hold #{name}, token #{@token}>"

    # The name of the lock; the names of several, with blanks between them.
    def name = @names.to_s

    # Seconds for which the lock is surely held.
    def remaining = locked { claims? ? (@validity.until - Dlock.now) / 1000.0 : 0.0 }

    def held? = remaining.positive?

    def lost? = locked { @validity.passes(Dlock.now) == :lost || @validity.state == :lost || @pid != Process.pid }

    def released? = @released

    # Whether nothing is left to do here: it was released, or a forked process left the block.
    def ended? = @released || @pid != Process.pid

    # Raises Lost unless the lock is surely held.
    def check! = held? || raise(Lost, "#{name}: the lock is not surely held any more")

    # Waits until the lock is lost or released, for `timeout` seconds at most. Returns whether it is lost.
    def wait_lost(timeout = nil)
      ends = timeout && Dlock.now + timeout * 1000
      locked do
        until @validity.passes(Dlock.now) || @validity.state != :held || (ends && Dlock.now >= ends)
          @changed.wait(@mutex, ([@validity.until, ends].compact.min - Dlock.now).clamp(1, 3_600_000) / 1000.0)
        end
      end
      lost?
    end

    # Sets the lease again, counted from now, in seconds.
    def extend(lease = nil)
      lease = lease ? longer(Options.millis(:lease, lease, @options.session ? 300 : 3)) : @validity.wanted
      state!
      ends = Dlock.now + Limits::RELEASE
      begin
        renew(lease, [ends, Dlock.now + Limits::STEP + Limits::LATE].min)
      rescue Unanswered => e
        reason = e.reason(reason)
        raise Unreachable, "#{name}: #{reason.message}", cause: reason if Dlock.now >= ends

        sleep 0.05
        retry
      end
      check!
      self
    end

    # Releases the lock. Raises Lost if the server no longer had it, or if the time for which it was surely held had
    # passed.
    def release
      lost = nil
      finish(releases) do
        state!
        lost = @validity.passes(Dlock.now) || @validity.state == :lost
      end
      raise Lost, "#{name}: the lock was lost" if lost
    end

    # Ends a hold that nobody wants any more, and sends nothing: the acquisition releases what the owner has.
    def drop
      locked { ended }
      @wire&.close
    end

    # Ends the hold, but lets its lock stay for this number of seconds from now, to show that the work was done.
    def leave(seconds)
      return release if seconds < 0.003

      finish(@names.renew(@owner, @token, (seconds * 1000).ceil), seconds)
    end

    # --- For the keeper.

    # Returns the next step, and in how many ms it is due at the latest.
    def due
      locked do
        now = Dlock.now
        @validity.passes(now)
        return [:released, 0] if @released
        return [:lost, 0] unless @validity.state == :held
        return [:rebind, 0] unless @binding.claims?

        what = @options.renew || @options.session ? @heart.what : nil
        at = [what && @heart.at, @validity.until].compact.min
        what = :wait if what.nil? || at > now
        [what == :again ? :renew : what, at - now]
      end
    end

    def rest(milliseconds) = locked { @changed.wait(@mutex, [milliseconds, 1].max / 1000.0) if @validity.state == :held }

    def wake = locked { @changed.broadcast }

    def unbind = locked { @binding.ended }

    def wanted = @validity.wanted

    def answer_by = Dlock.now + Heartbeat.answer_within(@validity.lease)

    # Renews the lease; with `wire`, binds the hold to it.
    def renew(lease, ends, wire = nil)
      number = locked do
        @validity.sends(Dlock.now, lease).tap { @heart.sends(@validity, Dlock.now) }
      end
      renewed(number, *ask(ends, lease, wire), ends)
    rescue Unanswered => e
      locked do
        @validity.cut(number) if number
        wire && @binding.doubtful?(e) ? @validity.gone : @heart.failed(@validity, Dlock.now)
      end
      raise
    end

    def check(ends)
      number = locked { @validity.asks(Dlock.now) }
      left = Names.together(@client.exchange(ends, *@names.check(@token)))
      locked do
        case left
        when Integer then @validity.left(number, left)
        when nil then @validity.gone
        end
        @heart.checked(@validity)
        @validity.passes(Dlock.now)
      end
    rescue Unanswered
      locked { @validity.cut(number) }
      raise
    end

    def tell_loss
      wake
      @wire&.close
      @options.on_loss&.call(self)
    end

    # --- For the named session.

    def kept = locked { yield @validity }

    # Until when the hold is certain. The session asks while it has its own mutex, so this takes none.
    def until = @validity.until

    def size = @names.size

    def tells? = !@options.on_loss.nil?

    def releases = @names.release(@owner, @token)

    def binds(session) = @names.bind(@owner, @token, session)

    def info = @names.info(@owner)

    def rebound(wire)
      locked do
        @wire = wire
        @binding.bound
        wire.close unless @validity.state == :held
      end
    end

    private

    def keeper
      Keeper.new(self, @client, @wire) if @options.renew || @options.session || @options.on_loss
    end

    # A hold of a named session keeps at least its first lease, which outlasts the timeout of the session
    # (Kept::LEASES).
    def longer(lease) = @options.named ? [lease, @options.lease].max : lease

    def locked(&block) = @mutex.owned? ? block.call : @mutex.synchronize(&block)

    def claims? = @pid == Process.pid && @binding.claims? && @validity.claims?(Dlock.now)

    def state!
      raise Released, "#{name}: the lock belongs to process #{@pid}" if @pid != Process.pid
      raise Released, "#{name}: the lock was released" if released?
    end

    def ended
      @released = true
      @validity.release
      @keeper ? @keeper.wake : wake
    end

    def limit(at)
      @validity.at_most(at)
      @heart.capped(Dlock.now)
    end

    # Returns the reply to a renewal, and to the WAIT behind it if replicas have to acknowledge. With `wire`, no WAIT
    # follows.
    def ask(ends, lease, wire)
      replicas, timeout = @options.replicas, @options.replicas_timeout
      words = @names.renew(@owner, @token, lease, *(wire ? ["SESSION"] : []))
      waits = wire || replicas.zero? ? [] : [["WAIT", replicas, timeout]]
      replies = (wire || @client).exchange(waits.empty? ? ends : ends + timeout, *words, *waits)
      [Names.together(replies.first(words.size)), replies[words.size]]
    end

    def renewed(number, renewal, acknowledged, ends)
      too_few = renewal.is_a?(Integer) && !acknowledged.nil? &&
                (!acknowledged.is_a?(Integer) || acknowledged < @options.replicas)
      locked do
        now = Dlock.now
        case
        when too_few
          @validity.cut(number)
          @heart.failed(@validity, now)
        when renewal == 1 then (sent = @validity.ok(number)) && @heart.ok(@validity, now, sent)
        when renewal == 0 then @validity.refused(number) && @heart.capped(now)
        when renewal.nil? || renewal.code == "WRONGTYPE" then @validity.gone
        else refused(number, renewal)
        end
      end
      @keeper&.wake unless @keeper&.current?
      raise TooFewReplicas, "#{name}: #{acknowledged} of #{@options.replicas}" if too_few
      raise Lost, "#{name}: the server has no such hold" if @validity.state == :lost

      check(ends) if renewal == 0
    end

    def refused(number, error)
      @validity.refused(number)
      @heart.failed(@validity, Dlock.now)
      raise error unless error.elsewhere? || error.paused?

      raise Unanswered, error.message
    end

    # Ends the hold with these last commands, which let its lock stay for `stays` seconds. The block may refuse that.
    # If an interrupt comes before they are executed, they are sent again in the background.
    def finish(words, stays = 0)
      held = mine = answered = nil
      locked do
        yield if block_given?
        mine = true
        held = claims?
        ended
      end
      farewell(words, held) { answered = true }
    ensure
      Thread.handle_interrupt(Object => :never) { finished(words, stays, answered) } if mine
    end

    def finished(words, stays, answered)
      unless answered
        locked { ended }
        later(words)
      end
      @wire&.close if stays.zero?
      release_late(stays)
    end

    # Sends the last commands of the hold, until they have an answer. Yields unless a server may still have to execute
    # them. A repeat that finds no hold is a success, if the hold was certain: the first copy has ended it.
    def farewell(words, held)
      unread = 0
      ends = Dlock.now + Limits::RELEASE
      reply = Names.together(@client.insist(ends, *words) { unread += 1 })
      yield unless reply.is_a?(ServerError) && reply.paused?
      raise reply if reply.is_a?(ServerError) && reply.code != "WRONGTYPE"
      return if reply.is_a?(Integer) || (reply.nil? && unread.positive? && held)

      raise Lost, "#{name}: the server has no such hold"
    rescue Unanswered => e
      raise Unreachable, "#{name}: the release has no answer: #{e.message}"
    end

    # Releases what a late copy of the request takes after the release, or after the lock has stayed for `stays`
    # seconds. While the lock stays, no copy takes it again.
    def release_late(stays)
      copied, @copied = @copied, false
      return unless copied && @pid == Process.pid && stays * 1000 < Limits::SEES_AN_END.last

      @client.release_late(@names.release_all(@owner), @options.named, stays)
    end

    # The server may not have got the last commands: repeats them until the lease is over, or for as long as the session
    # lives.
    def later(words)
      return @options.named.owe(words) if @options.named

      client = @client
      ends = Dlock.now + @options.lease
      Dlock.behind do
        client.insist(ends, *words)
      rescue Error
        nil
      end
    end
  end

  # Renews a hold, and notices its loss, in a thread that begins when there is something to do for the first time.
  class Keeper
    def initialize(hold, client, wire)
      @hold = hold
      @client = client
      @wire = wire
      @woken, @waker = IO.pipe if wire
    end

    def start = @wire ? go : rings

    # The session of a connection may end at any time, so its thread begins at once.
    def go
      @thread ||= Dlock.thread { run }.tap { |thread| thread.name = "dlock" }
    end

    def current? = @thread == Thread.current

    # Tells the waiting thread that the time or the reason of its wait has changed.
    def wake
      @waker&.write_nonblock(".")
      @hold.wake
      rings unless @thread
    rescue IOError, SystemCallError
      nil
    end

    private

    def rings
      what, within = @hold.due
      what == :released ? ALARM.drop(self) : ALARM.set(self, Dlock.now + within)
    end

    def run
      loop do
        what, within = @hold.due
        case what
        when :released then return
        when :lost then return @hold.tell_loss
        when :wait then rest(within)
        else act(what)
        end
      end
    ensure
      [@woken, @waker].each { |each| each&.close }
    end

    def rest(within)
      return @hold.rest(within) unless @wire

      @hold.unbind if @wire.readable?(within, @woken)
      @woken.read_nonblock(100, exception: false)
    end

    def act(what)
      case what
      when :renew then @hold.renew(@hold.wanted, @hold.answer_by)
      when :check then @hold.check(@hold.answer_by)
      when :rebind then rebind
      end
    rescue Unanswered, TooFewReplicas
      @client.distrust
      @hold.rest(10) if what != :renew
    rescue ServerError, Lost
      @hold.rest(10)
    end

    def rebind
      @wire&.close
      wire = @client.take(@hold.answer_by)
      @hold.renew(@hold.wanted, @hold.answer_by, wire)
      @wire = wire
      @hold.rebound(wire)
    rescue Error
      wire&.close
      raise
    end
  end
end
