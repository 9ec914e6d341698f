# frozen_string_literal: true

module Dlock
  # When a hold is renewed. Nothing here reads a clock.
  class Heartbeat
    # The next step, and when. :renew renews; :again renews again, if the renewal under way has no answer until then;
    # :check asks how long the hold lasts; nil: nothing is due.
    attr_reader :what, :at

    # Returns how long the answer to a renewal is waited for, in ms.
    def self.answer_within(lease) = (lease / 6).clamp(50, 2000)

    # Notes a grant, or a renewal that was executed. `sent`: when its command was sent.
    def ok(validity, now, sent) = plan(validity, [now, sent + (validity.lease / 3)].max)

    # Notes that a renewal is sent.
    def sends(validity, now)
      @what, @at = :again, [now + self.class.answer_within(validity.lease), validity.until].min unless @capped
    end

    # Notes that a renewal was refused, or got no answer. The next one follows after a small part of the time left.
    def failed(validity, now)
      plan(validity, now + [validity.lease / 30, (validity.until - now) / 8].min.clamp(10, 500))
    end

    # Notes that a cap made the lease shorter than what was asked for. The hold ends with it: nothing renews it.
    def capped(now)
      @what, @at, @capped = :check, now, true
    end

    # Notes that the server has said how long the hold lasts.
    def checked(validity)
      if @capped
        @what = @at = nil
      elsif @what == :renew
        plan(validity, @renewal)
      end
    end

    private

    def plan(validity, at)
      @what, @at = :renew, @renewal = [at, validity.until].min unless @capped
    end
  end
end
