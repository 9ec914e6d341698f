# frozen_string_literal: true

module Dlock
  # Until when a hold is certain. A lease counts from the moment before its command was sent, and of several commands that
  # may be executed in any order the shortest lease counts. Times are milliseconds; nothing here reads a clock.
  class Validity
    # How much earlier than the server the client counts a lease as ended, in ms: both count whole milliseconds.
    MARGIN = 2
    # How many commands without an answer are remembered one by one. Older ones are only counted.
    REMEMBERED = 16

    # A command that was sent. `cut`: the command got no answer. `overtakes`: the question may be executed before an
    # older command that sets the lease.
    Sending = Struct.new(:number, :at, :lease, :cut, :overtakes)

    # `wanted`: the lease that the last command asked for. `sure`: the lease that the server has at least.
    attr_reader :until, :state, :wanted, :sure

    # `open`: an earlier copy of the acquiring command may still be executed.
    def initialize(now, sent, lease, open: false)
      @wanted = @sure = @shortest = lease
      @until = sent + lease - MARGIN
      @state = :held
      @sent = []
      @abandoned = open ? 1 : 0
      @last = @last_set = 0
      passes(now)
    end

    # Notes the time: a hold that is not certain any more is lost.
    def passes(now)
      @state = :lost if @state == :held && now >= @until
    end

    # Returns whether the hold is certain.
    def claims?(now) = passes(now) != :lost && @state == :held && now < @until

    # Notes that a cap ends the hold at this time at the latest.
    def at_most(at) = @until = [@until, at].min

    # Returns the lease by which the next renewal is planned.
    def lease = [@wanted, @sure].min

    # Notes a command that sets the lease, before it is sent, and returns its number.
    def sends(now, lease)
      @shortest = lease if open.zero? || lease < @shortest
      @wanted = lease
      @sure = [@sure, lease].min
      @until = [@until, now + lease - MARGIN].min
      @last_set = note(now, lease)
    end

    # Notes a question for the time that is left, before it is sent, and returns its number.
    def asks(now)
      overtakes = open.positive?
      note(now, nil).tap { @sent.last.overtakes = overtakes }
    end

    # Notes the answer that a command has set the lease, and returns when the command was sent. Never makes `until`
    # earlier.
    def ok(number)
      return unless (each = take(number))

      @sure = @shortest
      @until = [@until, each.at + @sure - MARGIN].max
      each.at
    end

    # Notes that no answer came. The command may still be executed, at any time.
    def cut(number)
      @sent.each { |each| each.cut = true if each.number == number }
      cut = @sent.select(&:cut)
      return if cut.size <= REMEMBERED

      @abandoned += 1 if cut.first.lease
      @sent.delete(cut.first)
    end

    # Notes the answer that a command was not executed, or that a cap shortened its lease.
    def refused(number) = take(number)

    # Notes the answer to a question: `left` ms are left. The answer replaces `until`, unless a command that sets the
    # lease may be executed after the question. Then the answer can only make `until` later, and counts for no more than
    # `sure`.
    def left(number, left)
      return unless (each = take(number))

      if each.overtakes || @last_set > number
        @until = [@until, each.at + [left, @sure].min - MARGIN].max
      else
        @until = each.at + left - MARGIN
      end
    end

    # Notes the answer that the server has no such hold.
    def gone = @state == :held && @state = :lost

    def release = @state == :held && @state = :released

    private

    # Returns how many commands that set the lease may still be executed.
    def open = @abandoned + @sent.count(&:lease)

    def note(now, lease)
      @sent << Sending.new(@last += 1, now, lease)
      @last
    end

    # Removes a command, and returns it; nil: it is not remembered.
    def take(number)
      at = @sent.index { |each| each.number == number }
      at && @sent.delete_at(at)
    end
  end
end
