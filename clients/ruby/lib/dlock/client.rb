# frozen_string_literal: true

module Dlock
  # Locks on the server of a client: a Redis (redis-rb), a RedisClient, a ConnectionPool of either, or a URL. All threads may
  # share it; a forked process makes connections of its own. The client that it is given is asked for its settings only.
  class Client
    IDLE = 8

    # `defaults`: options of `lock`.
    def initialize(redis, **defaults)
      Options.from(**defaults)
      @profile = Profile.new(redis)
      @defaults = defaults
      @idle = []
      @mutex = Mutex.new
    end

    # The parts of a client would show a password.
    def inspect = "#<Dlock::Client>"

    # Waits for the lock and returns the hold, or yields it and releases it. Raises NotGranted after `wait` seconds. Options:
    # `lease` (30), `wait` (nil: without a limit), `renew` (true), `session` (true, or one of `session`), `mode` (:exclusive,
    # :read, :write), `slots`, `owner`, `outage` (30), `replicas`, `replicas_timeout`, `max_hold`, `on_loss`.
    def lock(name, **options, &block) = acquire(Names.one(name), options, &block)

    # All of these locks or none, with one token. The order of the names does not matter: such requests never deadlock among
    # themselves. One hold has them all, and is lost as soon as one of them is.
    def lock_all(names, **options, &block)
      Options.wrong("several locks have no mode and no slots") if options.key?(:mode) || options.key?(:slots)
      acquire(Names.all(names), options, &block)
    end

    # A session that keeps locks by one heartbeat: see Session. Returns it, or yields it and closes it.
    def session(**options, &block)
      session = Session.new(self, **options)
      return session unless block

      begin
        yield session
      rescue Exception => e
        failure = e
        raise
      ensure
        closing(session, failure)
      end
    end

    # Takes the lock as `lock` does, without waiting. Returns nil if it is not granted.
    def try(name, **options, &block)
      acquisition = Acquisition.new(self, Names.one(name), Options.from(**@defaults, **options, wait: 0))
      return acquisition.run unless block

      with(acquisition, &block)
    rescue NotGranted
      raise if acquisition.hold

      nil
    end

    def read(name, **options, &block) = lock(name, mode: :read, **options, &block)

    def write(name, **options, &block) = lock(name, mode: :write, **options, &block)

    # A place of a semaphore: `hold.slot` is a number below `limit` that no other holder has.
    def slot(name, limit, **options, &block) = lock(name, slots: limit, **options, &block)

    # Runs the block at most once in nine tenths of `every` seconds, on all machines together, and returns whether it
    # ran. The lock is the memory: it stays for that time, even if the block fails.
    def once(name, every:, **options, &block)
      stays = every * 0.9
      Options.wrong("`once` takes no session: its lock outlasts the block") if options[:session]
      options = { **@defaults, **options, session: false, lease: stays, wait: 0 }
      acquisition = Acquisition.new(self, Names.one(name), Options.from(**options))
      with(acquisition, Dlock.now + (stays * 1000), &block)
      true
    rescue NotGranted
      raise if acquisition.hold

      false
    end

    # Closes the connections that nobody uses.
    def close = @mutex.synchronize { @idle.each(&:close).clear }

    # --- For acquisitions and holds.

    # Returns where the user's client leads. `ends`: when a question to a Sentinel ends.
    def target(ends)
      @profile.now(ends)
    rescue ArgumentError, Error
      raise
    rescue StandardError => e # of the user's client: no Sentinel answers
      raise Unanswered, "#{e.class}: #{e.message}"
    end

    def distrust = @profile.distrust

    # Returns a connection with the present settings of the user's client.
    def take(ends)
      wanted = target(ends)
      found = @mutex.synchronize do
        @idle, others = @idle.partition { |wire| wire.target == wanted && wire.pid == Process.pid }
        others << @idle.pop until @idle.empty? || @idle.last.usable?
        others.each { |wire| wire.pid == Process.pid ? wire.close : wire.drop }
        @idle.pop
      end
      found || Wire.new(wanted, ends)
    end

    # Keeps a connection for `take`, which looks whether the server has closed it meanwhile. Closes it if it is not
    # clean, or if enough are kept.
    def give(wire)
      return unless wire
      return wire.close unless wire.clean?

      @mutex.synchronize { @idle.size < IDLE ? @idle << wire : wire.close }
    end

    def exchange(ends, *commands)
      wire = take(ends)
      wire.exchange(ends, *commands)
    ensure
      give(wire)
    end

    # Sends commands until a server has executed them or refused them for good, or `ends` has passed. Yields after each
    # attempt without such an answer that a server may have executed.
    def insist(ends, *commands)
      begin
        replies = exchange([ends, Dlock.now + Limits::STEP + Limits::LATE].min, *commands)
        again = replies.find { |reply| reply.is_a?(ServerError) && reply.elsewhere? }
        raise Unanswered.new(again.message, sent: again.open? || replies.any?(Integer)) if again

        replies
      rescue Unanswered => e
        distrust
        yield if e.sent? && block_given?
        reason = e.reason(reason)
        raise reason if Dlock.now >= ends

        sleep([rand(0.02..0.2), [ends - Dlock.now, 0].max / 1000.0].min)
        retry
      end
    end

    # Releases in the background what a copy of a request takes that is executed after the end of its hold, which is
    # `stays` seconds from now. A named session would keep it.
    def release_late(commands, named, stays)
      begun = Dlock.behind do
        sleep(stays)
        replies = release_again(commands)
        named&.owe(commands) if replies.grep(ServerError).any?(&:paused?)
      rescue Error
        named&.owe(commands)
      end
      named&.owe(commands) unless begun
    end

    # Releases what a late copy takes, for as long as one may come, and returns the last replies.
    def release_again(commands)
      Limits::SEES_AN_END.map do |pause|
        sleep(pause / 1000.0)
        insist(Dlock.now + Limits::CLEANUP, *commands)
      end.last
    end

    private

    def acquire(names, options, &block)
      acquisition = Acquisition.new(self, names, Options.from(**@defaults, **options))
      block ? with(acquisition, &block) : acquisition.run
    end

    def closing(session, failure)
      session.close
    rescue Error => e
      raise unless failure

      Dlock.attach(failure, e)
    end

    # Runs the block with the hold. Interrupts (Timeout, Thread#raise, Thread#kill) end the wait or the block. The
    # release is not interrupted, and an interrupt between the wait and the block leaves no hold.
    def with(acquisition, stays = nil)
      Thread.handle_interrupt(Object => :never) do
        Thread.handle_interrupt(Object => :immediate) { yield acquisition.run }
      rescue Exception => e
        failure = e
        raise
      ensure
        acquisition.finish(failure, stays)
      end
    end
  end
end
