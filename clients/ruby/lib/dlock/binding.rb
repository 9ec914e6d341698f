# frozen_string_literal: true

module Dlock
  # A hold is kept by a connection. While none does, the server may have released it: nothing is claimed.
  class Binding
    def initialize(session)
      @bound = session
      @session = session
    end

    def session? = @session

    def claims? = !@session || @bound

    def ended = @bound = false

    # The answer that a new connection keeps the hold.
    def bound = @bound = true

    # Without an answer to the command that binds it, the end of that connection may end the hold at any time.
    def doubtful?(error) = error.is_a?(Unanswered) && error.sent?
  end
end
