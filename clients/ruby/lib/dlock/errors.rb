# frozen_string_literal: true

module Dlock
  class Error < StandardError; end

  # A server said that the lock was not granted, at once or within the limit.
  class NotGranted < Error; end

  # No server answered in time: nothing is known.
  class Unreachable < Error; end

  # The lock is lost, or must be assumed lost.
  class Lost < Error; end

  # The wait would never have ended.
  class Deadlock < Error; end

  # The server does not have the module.
  class ModuleMissing < Error; end

  # Fewer replicas than asked for have acknowledged. A grant was released.
  class TooFewReplicas < Error; end

  # The lock was released before, or belongs to the process that this one was forked from.
  class Released < Error; end

  # An error that the server answered.
  class ServerError < Error
    # Codes of servers that execute nothing now: the same command is sent again, perhaps to another server.
    ELSEWHERE = %w[LOADING READONLY MASTERDOWN MOVED ASK TRYAGAIN CLUSTERDOWN].freeze
    # Codes of a server that writes nothing now. A hold is still there until its lease ends.
    PAUSED = %w[NOREPLICAS MISCONF BUSY].freeze

    def code = message[/\A\S+/]

    # Whether another server, or this one later, may execute the command. A server that is demoted ends the waits of its
    # clients with "UNBLOCKED force unblock from blocking operation, instance state changed …".
    def elsewhere?
      ELSEWHERE.include?(code) || replica? || message.start_with?("ERR max number of clients") ||
        (code == "UNBLOCKED" && message.include?("state changed"))
    end

    # Whether the server is no primary. Another connection may lead to one.
    def replica? = %w[READONLY MASTERDOWN].include?(code) || message.start_with?("ERR WAIT cannot be used with replica")

    def paused? = PAUSED.include?(code)

    # Whether the command may have been executed: a wait was ended, or an agent has no answer of its servers. A server that
    # starts says "LOADING Redis is loading …", with its own name, which an agent's text may quote further on.
    def open? = code == "UNBLOCKED" || (code == "LOADING" && !message.match?(/\ALOADING \S+ is loading /))

    # The error for the caller.
    def explained(name)
      return Deadlock.new("#{name}: #{message}") if code == "DEADLOCK"
      return self unless message.match?(/\AERR unknown command.*dlock\./i)

      ModuleMissing.new("#{name}: is the dlock module loaded on this server? #{message}")
    end
  end

  # No answer came. `sent`: the command was sent, and may be executed. `silent`: its connection is still there.
  class Unanswered < Error
    attr_reader :silent

    def initialize(message, sent: false, silent: false)
      super(message)
      @sent = sent
      @silent = silent
    end

    def sent? = @sent

    # The error for the user. `before`: the error of the try before. Silence may only mean that the limit came before
    # the answer, so the earlier error says more.
    def reason(before) = (silent && before) || self
  end
end
