# frozen_string_literal: true

module Dlock
  # Carries out an attempt: sends what it decides, and tells it the answers.
  class Acquisition
    # Pauses in ms while the key has another kind of lock, for which there is no queue.
    FOREIGN = 100..250

    attr_reader :hold

    def initialize(client, names, options)
      Options.wrong("the session is of another client") if options.named && !options.named.of?(client)
      @client = client
      @names = names
      @options = options
      now = Dlock.now
      @attempt = Attempt.new(now, Limits.new(now, options.wait, options.outage), options.lease)
      @owner = options.new_owner
      @debts = [] # Owners that may have been granted something, and have not been released yet.
      @parted = [] # Connections that were left while the server may still answer there.
      @stray = false # Whether a copy has no answer that was not sent on a connection of `@parted`.
    end

    def limits = @attempt.limits

    # Returns the hold. However this ends, nothing else is left on a server.
    def run
      before = $! # A caller's `rescue` has set it.
      turn = @attempt.again
      failures = 0
      until turn.over?
        @cause = nil
        renew_owner if turn.fresh
        turn = turn.action == :confirm ? confirm : ask(turn)
        failures = @cause ? failures + 1 : 0
        @reason = @cause.is_a?(Unanswered) ? @cause.reason(@reason) : @cause
        turn = pause(turn, failures) if @cause && !turn.over?
      end
      @hold = outcome(turn)
      @wire = nil
      @hold.keep(@openings)
      settle
      @settled = done = true
      @hold
    ensure
      abandon unless done && before.equal?($!)
    end

    # Ends the hold of a block, or lets its lock stay until the time `stays`. The block's exception wins.
    def finish(failure, stays)
      abandon unless @settled # A second interrupt came before `run` could abandon it.
      return if @hold.nil? || @hold.ended?

      stays ? @hold.leave((stays - Dlock.now) / 1000.0) : @hold.release
    rescue Error => e
      raise unless failure

      Dlock.attach(failure, e)
    end

    private

    def ask(turn)
      waits = turn.action == :wait
      @openings = @options.named&.ready(limits.answer_by(Dlock.now, @attempt.heard))
      wire = @wire || @client.take(limits.answer_by(Dlock.now, @attempt.heard))
      @wire = wire
      return @attempt.over(Dlock.now) if waits && !limits.time?(Dlock.now)

      # Former owners are released even if the end of their connection did it: the server may have been no primary then.
      wire.exchange(Dlock.now + Limits::STEP, *@debts.flat_map { |owner| @names.release_all(owner) })
      number = @attempt.sends(Dlock.now)
      block = limits.block(Dlock.now) if waits
      wire.write(Dlock.now + Limits::STEP, @options.acquire(@names, @owner, "1", block))
      await(wire) if waits
      ends = waits ? limits.confirm_by(Dlock.now, @attempt.heard) : limits.answer_by(Dlock.now, @attempt.heard)
      answered(wire, number, wire.read(ends), waits)
    rescue Unanswered => e
      unanswered(e)
    end

    # Waits for the reply to a wait, for as long as a server is there.
    def await(wire)
      ends = limits.ends && limits.ends + Limits::LATE
      asked = Dlock.now
      until wire.readable?([asked + limits.probe_every, ends].compact.min - Dlock.now)
        raise Unanswered.new("no answer in time", sent: true, silent: true) if ends && Dlock.now >= ends
        next if Dlock.now < asked + limits.probe_every

        missed = probe(wire, missed)
        asked = missed ? Dlock.now - limits.probe_every + (limits.outage / 30) : Dlock.now
      end
    end

    # Asks the server something else during a wait, since it may hang. Returns whether there is no answer.
    def probe(wire, missed)
      ends = [Dlock.now + [limits.outage / 3, Limits::STEP + Limits::LATE].min, limits.gives_up(@attempt.heard)].min
      reply, = @client.exchange([ends, Dlock.now + 1].max, ["DLOCK.CHECK", @names.first, 1])
      raise Unanswered, reply.message if reply.is_a?(ServerError) && reply.code == "LOADING"

      @attempt.hears(Dlock.now)
      @reason = nil
      moved = missed || wire.target != @client.target([ends, Dlock.now + 1].max)
      moved ? raise(Unanswered.new("the server is another one, or was away", sent: true)) : false
    rescue Unanswered => e
      raise if moved

      @reason = e.reason(@reason)
      raise Unanswered.new(e.message, sent: true, silent: true) if Dlock.now >= limits.gives_up(@attempt.heard)

      true
    end

    def unanswered(error)
      @cause = error
      @client.distrust
      @stray ||= !error.silent && @attempt.copies.any?
      leave(error.silent) if @wire
      @attempt.cut(Dlock.now)
    end

    # Leaves a connection on which no reply came. The next copy needs another owner if something may still end its
    # grant: the release that `part` sends behind the wait, or the end of the connection, with which its session ends.
    def leave(silent)
      if silent
        part
      else
        @wire.close
        @wire = nil
      end
      return unless silent || (@options.session && @attempt.copies.any?)

      @attempt.forsake
      renew_owner
    end

    def renew_owner
      @debts << @owner
      @owner = @options.new_owner
    end

    def answered(wire, number, reply, waited)
      if reply.is_a?(ServerError) || reply.nil?
        give_back
        return reply ? refused(number, reply) : @attempt.nil(Dlock.now, number, waited)
      end
      @token, @slot = reply
      acknowledged = acknowledged(wire, waited)
      give_back
      acknowledged ? @attempt.granted(Dlock.now, number) : @attempt.failed(nil)
    end

    def refused(number, error)
      @cause = error
      return missing(number) if error.code == "NOSESSION"

      if error.elsewhere?
        @client.distrust
        @stray ||= error.open?
        turn = error.open? ? @attempt.cut(Dlock.now) : @attempt.refused(Dlock.now, number)
        leave(false) if @wire && (error.replica? || error.code == "UNBLOCKED") # A session has kept the connection.
        return turn
      end
      return @attempt.nil(Dlock.now, number, false) if error.code == "WRONGTYPE"

      @failure = error.explained(@names)
      @attempt.failed(error.code == "UNBLOCKED" ? nil : number)
    end

    # The server does not know the session: it has restarted, or another one has taken over.
    def missing(number)
      @options.named.missing
      @attempt.refused(Dlock.now, number)
    end

    # Waits for the replicas. WAIT waits for writes. A renewal is one; a repeat that gets an earlier grant is none, and
    # before 7.0.12 Redis does not count a grant to a waiting connection.
    def acknowledged(wire, waited)
      return true if @options.replicas.zero?

      waited ||= @attempt.copies.size > 1
      commands = waited ? renewals : []
      timeout = limits.of_replicas(Dlock.now, @options.replicas_timeout)
      @open ||= waited
      replies = wire.exchange(Dlock.now + timeout + Limits::LATE, *commands, ["WAIT", @options.replicas, timeout])
      moved = replies.find { |each| each.is_a?(ServerError) && each.elsewhere? }
      # The grant was made, and another server may have it.
      raise Unanswered.new(moved.message, sent: true) if moved
      raise Unanswered.new("the grant is over", sent: true) if replies.include?(nil)

      reply = replies.last
      return true if reply.is_a?(Integer) && reply >= @options.replicas

      @failure = reply.is_a?(ServerError) ? reply : TooFewReplicas.new("#{@names}: #{reply} of #{@options.replicas}")
      @debts << @owner
      false
    end

    def renewals = @names.renew(@owner, @token, @options.lease, *@options.binds)

    # Renews the grant: its lease began somewhere in the wait.
    def confirm
      ends = limits.confirm_by(Dlock.now, @attempt.heard)
      @openings = @options.named&.ready(ends)
      @wire ||= @client.take(ends)
      number = @attempt.renews(Dlock.now)
      replies = @wire.exchange(ends, *renewals, *@names.check(@token))
      give_back
      confirmed(number, *replies.each_slice(@names.size).map { |each| Names.together(each) })
    rescue Unanswered => e
      @cause = e
      @client.distrust
      @open = true
      @wire&.close
      @wire = nil
      # The renewal may have bound the hold to this connection, whose end then ends the hold.
      @options.session ? @attempt.gone(Dlock.now) : @attempt.cut(Dlock.now)
    end

    def confirmed(number, renewed, left)
      now = Dlock.now
      case renewed
      when 1 then @attempt.ok(now, number)
      when 0 then left.is_a?(Integer) ? @attempt.ok(now, number, @cap = left) : @attempt.gone(now)
      when nil then @attempt.gone(now)
      else
        @cause = renewed
        return missing(number) if renewed.code == "NOSESSION"
        # The hold of a session is bound to the connection to that server.
        raise Unanswered.new(renewed.message, sent: true) if @options.session && renewed.replica?
        @client.distrust if renewed.elsewhere?
        return @attempt.refused(now, number) if renewed.elsewhere? || renewed.paused?
        return @attempt.gone(now) if renewed.code == "WRONGTYPE"

        @failure = renewed
        @attempt.failed(number)
      end
    end

    # A session keeps its connection.
    def give_back
      give_wire unless @options.session
    end

    # The client may lend the connection to others from now on, even if an interrupt comes between these steps.
    def give_wire
      wire, @wire = @wire, nil
      @client.give(wire)
    end

    def pause(turn, failures)
      foreign = @cause.is_a?(ServerError) && @cause.code == "WRONGTYPE"
      ms = foreign ? rand(FOREIGN) : [10 * 2**[failures, 5].min, 250].min * rand(0.5..1)
      ends = limits.gives_up(@attempt.heard)
      sleep([[ms, ends - Dlock.now].min, 0].max / 1000.0)
      Dlock.now >= ends ? @attempt.over(Dlock.now) : turn
    end

    def outcome(turn)
      if turn.action == :granted
        return Hold.new(@client, @names, @options, owner: @owner, token: @token, slot: @slot, sent: @attempt.since, wire: @wire,
                                                   open: @open || @attempt.copies.any?, cap: @cap && turn.at,
                                                   copied: @attempt.copies.any?)
      end
      @debts << @owner unless turn.cleanup == :none
      case turn.action
      when :failed then raise @failure
      when :refused then raise NotGranted, "#{@names}: the lock was not granted"
      else raise Unreachable, "#{@names}: no server answered in time#{@reason && ": #{@reason.message}"}", cause: @reason
      end
    end

    # Gives up: the caller no longer waits, or there is an error. Another interrupt has to wait.
    def abandon
      Thread.handle_interrupt(Object => :never) do
        @debts << @owner if @hold || @attempt.canceled.cleanup != :none
        @hold&.drop
        @hold = nil
        part if @wire && !@wire.usable?
        settle
        @settled = true
      end
    end

    def part
      wire, @wire = @wire, nil
      @parted << wire
      wire.part(*@names.release_all(@owner))
    end

    # Releases in the background what the owners of the acquisition may have been granted.
    def settle
      give_wire
      releases, parted, client, named = @debts.uniq.flat_map { |owner| @names.release_all(owner) }, @parted, @client, @options.named
      return parted.each(&:close) if releases.empty?

      open, stray = @attempt.open?, @stray
      begun = Dlock.behind do
        ends = Dlock.now + 2000
        parted.each { |wire| wire.await_end(ends) }
        replies = client.insist(Dlock.now + Limits::CLEANUP, *releases)
        replies = client.release_again(releases) if stray
        done = replies.all? { |reply| released?(reply, open && !stray) }
      rescue Error
        nil # The leases of these holds end them, unless a session keeps them.
      ensure
        named&.owe(releases) unless done
      end
      return if begun

      parted.each(&:close)
      named&.owe(releases)
    end

    # A release that finds nothing may come before a copy whose connection was lost.
    def released?(reply, open) = reply.nil? ? !open : reply.is_a?(Integer) || reply.code == "WRONGTYPE"
  end
end
