# frozen_string_literal: true

module Dlock
  # The lock that an acquisition is for, or the locks that it gets together or not at all, and the commands for them.
  # Nothing here sends anything.
  class Names
    MOST = 64

    def self.one(name) = new([Options.name_of(name)])

    def self.all(names)
      Options.must_be("the names of locks", "an Array", names) unless names.is_a?(Array)
      found = names.map { |name| Options.name_of(name) }
      different = found.map(&:b).uniq.size # The server compares bytes.
      Options.wrong("several locks must be 1 to #{MOST} different ones") unless different.between?(1, MOST) && different == found.size
      new(found, together: true)
    end

    def initialize(names, together: false)
      @names = names
      @together = together
    end

    # For people: names may be of several encodings, or of none.
    def to_s = @names.map { |name| legible(name) }.join(" ")

    def first = @names.first

    def size = @names.size

    # The acquiring command up to its lease.
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

    # Returns one reply for those of all locks: nil if one is nil; else an error, WRONGTYPE first; else the least.
    def self.together(replies)
      return if replies.include?(nil)

      errors = replies.grep(ServerError)
      errors.find { |error| error.code == "WRONGTYPE" } || errors.first || replies.min
    end

    private

    def legible(name)
      name = name.dup.force_encoding(Encoding::UTF_8) if name.encoding.dummy? || name.encoding == Encoding::BINARY
      name.encode(Encoding::UTF_8, invalid: :replace, undef: :replace).scrub
    end

    def each(verb, *words) = @names.map { |name| [verb, name, *words] }
  end
end
