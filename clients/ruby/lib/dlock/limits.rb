# frozen_string_literal: true

module Dlock
  # The time limits of docs/time-limits.md, in milliseconds, and the deadlines that follow from them for the steps of an
  # acquisition. Nothing here reads a clock.
  class Limits
    # How long a command that does not wait may take in all, and each of its steps.
    STEP = 1000
    # How long after the end of a wait or a step its answer may arrive.
    LATE = 150
    # How long after LATE a grant may be confirmed. Replicas have at least this time to acknowledge a grant.
    LAST = 50
    # How late WAIT may end: a server looks ten times a second (hz) which waits are over.
    ENDS_LATE = 100
    # How long a release looks for a server, and how long the work after an acquisition that was given up may take.
    RELEASE = 3000
    CLEANUP = 3000

    # How long after the end of its connection a command may be executed: on the same machine, and at most.
    SEES_AN_END = [20, 1000].freeze

    attr_reader :ends, :outage

    # `wait`: 0 does not wait, nil waits for as long as a server answers.
    def initialize(now, wait, outage)
      @try = wait&.zero?
      @ends = wait && now + (@try ? STEP : wait)
      @outage = outage
    end

    def try? = @try

    def gives_up(heard) = @ends || heard + @outage

    def answer_by(now, heard) = [now + STEP, gives_up(heard)].min + LATE

    def confirm_by(now, heard) = [now + STEP, gives_up(heard) + LATE + LAST].min

    def time?(now) = @ends.nil? || now < @ends

    # The argument of BLOCK. 0: no limit.
    def block(now) = @ends ? [(@ends - now).ceil, 1].max : 0

    # How long replicas may take to acknowledge a grant. The server answers by the end of the wait, unless less than
    # ENDS_LATE + LAST is left.
    def of_replicas(now, timeout) = @ends ? [timeout, [(@ends - now).ceil - ENDS_LATE, LAST].max].min : timeout

    # How often a wait that hears nothing asks whether the server still answers.
    def probe_every = @outage / 3
  end
end
