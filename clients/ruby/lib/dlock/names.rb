# frozen_string_literal: true

module Dlock
  # The lock that an acquisition is for, or the locks that it gets together or not at all, and the commands for them.
  # Nothing here sends anything.
  class Names
    MOST = 64

    def self.one(name) = new([Options.name_of(name)])

    def self.all(names)
      Options.wrong("the names of locks are an Array, not #{names.inspect}") unless names.is_a?(Array)
      found = names.map { |name| Options.name_of(name) }
      Options.wrong("several locks are 1 to #{MOST} different ones") unless found.uniq.size.between?(1, MOST) && found.uniq!.nil?
      new(found, together: true)
    end

    def initialize(names, together: false)
      @names = names
      @together = together
    end

    def to_s = @names.join(" ")

    def first = @names.first

    def size = @names.size

    # The acquiring command up to its options.
    def acquire(options, owner)
      return ["DLOCK.MACQUIRE", size, *@names, owner] if @together
      return ["DLOCK.SACQUIRE", first, owner, options.slots, "SLOT"] if options.slots

      [Options::COMMANDS[options.mode], first, owner]
    end

    def release(owner, token) = each("DLOCK.RELEASE", owner, "ALL", "TOKEN", token)

    # Releases everything of an owner of whom nothing else is known.
    def release_all(owner) = each("DLOCK.RELEASE", owner, "ALL")

    def renew(owner, token, lease, *more) = each("DLOCK.RENEW", owner, "PX", lease, "TOKEN", token, *more)

    # Binds the holds to a named session.
    def bind(owner, token, session) = each("DLOCK.RENEW", owner, "TOKEN", token, "SESSIONID", session)

    def check(token) = each("DLOCK.CHECK", token)

    def info(owner) = each("DLOCK.INFO", "OWNER", owner)

    # Returns one reply for the replies to commands for all of them: nil or an error of one is that of all; else the least.
    def self.together(replies)
      return if replies.include?(nil)

      errors = replies.grep(ServerError)
      errors.find { |error| error.code == "WRONGTYPE" } || errors.first || replies.min
    end

    private

    def each(verb, *words) = @names.map { |name| [verb, name, *words] }
  end
end
