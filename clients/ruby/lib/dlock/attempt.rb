# frozen_string_literal: true

module Dlock
  # The course of an acquisition: its next step, and its end. Every copy of its command has the same REQUEST, and
  # the same owner until the copies are forsaken. Nothing here reads a clock or sends anything.
  class Attempt
    Copy = Struct.new(:number, :at)

    # `action`: :try, :wait, :confirm; or an end: :granted (certain until `at`), or :refused, :unreachable, :canceled or
    # :failed (with a `cleanup`: :none, :leave, :release). `fresh`: with a new owner.
    Turn = Struct.new(:action, :fresh, :at, :cleanup, keyword_init: true) do
      def over? = !%i[try wait confirm].include?(action)
    end

    attr_reader :since, :heard, :copies, :limits

    def initialize(now, limits, lease)
      @limits = limits
      @lease = lease
      @heard = now
      @copies = []
      @renewals = []
      @forsaken = @numbers = 0
    end

    # Most locks are free: until a server has answered, the command does not wait.
    def again = Turn.new(action: @limits.try? || !@answered ? :try : :wait)

    def sends(now) = note(@copies, now)

    def renews(now) = note(@renewals, now)

    # A server has answered, not necessarily this attempt.
    def hears(at) = @heard = [@heard, at].max

    # A grant may be as old as the earliest copy that has no answer.
    def granted(now, number)
      return again unless @copies.any? { |copy| copy.number == number }

      @since = @copies.first.at
      drop(number)
      answered(now)
      now - @since <= @lease / 3 ? grant(@since) : Turn.new(action: :confirm)
    end

    def nil(now, number, waited)
      drop(number)
      answered(now)
      @refused = true
      return Turn.new(action: :confirm) if @since # The grant of another copy is being confirmed.
      return over(now) if @limits.try? || !@limits.time?(now)
      return finish(:refused) if waited && @copies.empty?

      Turn.new(action: :wait) # If this copy has waited, another one has taken its place.
    end

    # A renewal of the grant was executed. `most`: the ms after which a cap ends it.
    def ok(now, number, most = @lease)
      sent = @renewals.find { |copy| copy.number == number }&.at
      return Turn.new(action: :confirm) unless sent

      drop(number)
      answered(now)
      lease = [@lease, most].min
      if now < sent + lease - Validity::MARGIN
        @since = sent
        return grant(sent, lease)
      end
      @limits.time?(now) ? Turn.new(action: :confirm) : over(now)
    end

    # The grant is over. The next request, if time is left for one, is a new one.
    def gone(now)
      answered(now)
      @refused = true
      @since = nil
      @renewals.clear
      forsake
      return finish(:refused) unless @limits.time?(now)

      Turn.new(action: @limits.try? ? :try : :wait, fresh: true)
    end

    # No answer came. The command may still be executed.
    def cut(now)
      return over(now) unless @limits.time?(now)

      @since ? Turn.new(action: :confirm) : again
    end

    # An error which says that the command was not executed: it is sent again, perhaps elsewhere.
    def refused(now, number)
      drop(number)
      cut(now)
    end

    def failed(number)
      drop(number)
      finish(:failed)
    end

    def canceled = finish(:canceled)

    # The end: a try was refused, the limit has passed, or no server has answered for too long.
    def over(now)
      return now < @since + @lease - Validity::MARGIN ? grant(@since) : finish(:unreachable) if @since

      finish(@refused && @limits.ends ? :refused : :unreachable)
    end

    # Whether a copy may still be executed.
    def open? = @copies.any? || @forsaken.positive?

    # The copies become those of a former owner, for whom nobody waits.
    def forsake
      @forsaken += @copies.size
      @copies.clear
    end

    private

    def note(copies, now)
      copies << Copy.new(@numbers += 1, now)
      @numbers
    end

    def answered(now)
      @heard = now
      @answered = true
    end

    def grant(since, lease = @lease) = Turn.new(action: :granted, at: since + lease - Validity::MARGIN)

    def finish(how)
      rest = open? ? :leave : :none
      Turn.new(action: how, cleanup: @since ? :release : rest)
    end

    def drop(number)
      [@copies, @renewals].each { |copies| copies.reject! { |copy| copy.number == number } }
    end
  end
end
