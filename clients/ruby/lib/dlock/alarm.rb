# frozen_string_literal: true

module Dlock
  # Begins the work of holds when it is due, in one thread for all. Most locks are released before they have to be renewed,
  # and need no thread of their own.
  class Alarm
    # Work that is due within this many ms is begun together with work that is due now, and waits in its own thread.
    SOON = 100
    # The pause in ms after the system had no room for a thread.
    PAUSE = 50
    # How long the thread stays when nothing is left to do, in ms, so that the next lock does not start a new one.
    LINGERS = 1000

    def initialize
      @mutex = Mutex.new
      @changed = ConditionVariable.new
      @times = {}.compare_by_identity
    end

    # Has `what.go` called at the time `at` at the latest. `at` replaces the time that was set for `what` before.
    def set(what, at)
      @mutex.synchronize do
        forked if @pid != Process.pid
        start unless @thread&.alive?
        @times[what] = at
        @used = true
        @changed.signal if at < @wakes
      end
    end

    # Forgets `what`, which is not begun any more.
    def drop(what) = @mutex.synchronize { @times.delete(what) }

    private

    # Begins again in a forked process. The thread stays with the parent, and so does the thread's work. An
    # interrupt may come between two of these lines: `@pid` is last, so that the next caller does all of them again.
    def forked
      @thread = nil
      @times.clear
      @wakes = Float::INFINITY
      @pid = Process.pid
    end

    def start
      @thread = Dlock.thread { run }
      @thread.name = "dlock-alarm"
    end

    def run
      while (due = await)
        due.each { |what| begin_with(what) }
      end
    end

    # Waits for work that is due, and returns it. Returns nil if nothing was left to do for LINGERS.
    def await
      @mutex.synchronize do
        loop do
          now = Dlock.now
          @wakes = @times.values.min || (now + LINGERS)
          return take(now + SOON) if @wakes <= now

          @used = false
          # A wait for more than an hour is done in pieces.
          @changed.wait(@mutex, [@wakes - now, 3_600_000].min / 1000.0)
          return @thread = nil if @times.empty? && !@used
        end
      end
    end

    # Removes the work that is due until the time `ends`, and returns it.
    def take(ends)
      due, later = @times.partition { |_, at| at <= ends }
      @times = later.to_h.compare_by_identity
      due.map(&:first)
    end

    def begin_with(what)
      what.go
    rescue ThreadError
      set(what, Dlock.now + PAUSE)
    end
  end

  ALARM = Alarm.new
  private_constant :ALARM
end
