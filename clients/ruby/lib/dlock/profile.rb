# frozen_string_literal: true

require "openssl"

module Dlock
  # Says how the user's client would make a new connection now: where the connection leads, and its first words. A
  # client whose settings are not understood is refused.
  class Profile
    # Where a connection leads, and what it says first.
    Target = Struct.new(:host, :port, :path, :tls, :username, :password, :db, :name) do
      # Leaves out the password. `inspect`, `to_s` and `pp` of a Struct would show it.
      def inspect = "#<dlock target #{path || "#{host}:#{port}"}/#{db}>"

      alias_method :to_s, :inspect

      def pretty_print(out) = out.text(inspect)
    end

    # `client`: a URL, a Redis (redis-rb), a RedisClient, or a pool of either.
    def initialize(client)
      @url = Url.parse(client) if client.is_a?(String)
      @client = client unless @url # A URL may have a password, which `inspect` would show.
      @mutex = Mutex.new
      check(client) if @url.nil? && !pool?
    end

    # Returns the Target by the present settings. Asks a Sentinel if need be, until the time `ends`.
    def now(ends) = @url || with_client(ends) { |client| of(client, ends) }

    # Has a Sentinel asked again, because the server does not answer, or is not the right one.
    def distrust
      with_client(Dlock.now) { |client| forget(client) } unless @url
    rescue StandardError
      nil # If no client of the pool is free, a Sentinel is asked again later.
    end

    private

    def pool? = defined?(::ConnectionPool) && @client.is_a?(::ConnectionPool)

    # Lends the client of the user. A pool may have no free client until the time `ends`: then this raises its error.
    def with_client(ends, &work)
      pool? ? @client.with(timeout: seconds(ends), &work) : yield(@client)
    end

    def seconds(ends) = [ends - Dlock.now, 0].max / 1000.0

    # Returns the result of the block, which asks a Sentinel. A Sentinel that hangs cannot be interrupted, so another
    # thread asks. There is one such thread at a time, because all share the client.
    def asked(ends)
      asking = @mutex.synchronize do
        @asking = Dlock.beside { yield rescue $! } unless @asking&.alive? # rubocop:disable Style/RescueModifier
        @asking
      end
      raise Unanswered, "no Sentinel answers in time" unless asking.join(seconds(ends))
      raise asking.value if asking.value.is_a?(StandardError)

      asking.value
    end

    def forget(client)
      config = config(client)
      config.reset if config&.sentinel?
    end

    def of(client, ends)
      check(client)
      options = options(client)
      options ? of_options(inner(client), options, ends) : of_config(config(client), ends)
    end

    # Refuses a client that is not understood. Asks no server.
    def check(client)
      options = options(client)
      config = config(client)
      raise ArgumentError, "dlock: a client with its own connector is not understood" if options && options[:connector]

      role = options ? options[:role] : config&.instance_variable_get(:@role) # Only clients of Sentinel have one.
      raise ArgumentError, "dlock: locks are on a primary, not on a #{role}" unless [nil, "master"].include?(role&.to_s)
      return if options || config

      raise ArgumentError, "dlock: #{client.class} is none of the clients that are understood: Redis, RedisClient, " \
                           "a ConnectionPool of them, or a URL"
    end

    def inner(client) = defined?(::Redis) && client.is_a?(::Redis) ? client._client : client

    # Returns the options of a client of redis-rb 4, or nil. Within a pipeline, that client is of another class: nil.
    def options(client)
      client = inner(client)
      client.options if defined?(::Redis::Client) && client.instance_of?(::Redis::Client) && client.respond_to?(:options)
    end

    # Returns the settings of a client of redis-client, on which redis-rb 5 is built, or nil. Other objects are not
    # asked: their `config` may send a command.
    def config(client)
      client = inner(client)
      kinds = [defined?(::RedisClient::Common) && ::RedisClient::Common,
               defined?(::RedisClient::Decorator::Client) && ::RedisClient::Decorator::Client].select { |each| each }
      client.config if kinds.any? { |kind| client.is_a?(kind) }
    end

    # Returns the Target of a client of redis-rb 4, of which only the connector still knows the name of the primary.
    def of_options(client, options, ends)
      at = options
      at = options.merge(asked(ends) { client.instance_variable_get(:@connector).resolve }) if options[:sentinels]
      Target.new(at[:host], at[:port]&.to_i, at[:path], tls(options), options[:username], options[:password],
                 options[:db], options[:id])
    end

    def tls(options)
      return unless options[:ssl]

      @tls ||= OpenSSL::SSL::SSLContext.new.tap { |context| context.set_params(options[:ssl_params] || {}) }
    end

    # Returns the Target of a client of redis-client, or of redis-rb 5.
    def of_config(config, ends)
      asked(ends) { config.host } if config.sentinel?
      Target.new(config.path ? nil : config.host, config.path ? nil : config.port, config.path, config.ssl_context,
                 config.username, config.password, config.db, config.id)
    end
  end

  # The meaning of a URL, as the table tests/clients/tables/urls.txt says.
  module Url
    FORM = %r{\A(rediss?|valkeys?)://(?:([^@/?#\s]*)@)?(\[[0-9a-f:.]+\]|[^:,@/?#\s\[\]]+)(?::(\d+))?(/\d*/?)?(?:\?([^?#\s]*))?\z}i
    SOCKET = %r{\A(unix)://(?:([^@/?#\s]*)@)?(/[^?#\s]+)(?:\?([^?#\s]*))?\z}i

    module_function

    def parse(text)
      url = text.strip
      if (found = FORM.match(url))
        scheme, login, host, port, db, query = found.captures
        at = [host.delete("[]"), number(port || 6379, 1..65_535), nil, tls(scheme)]
      elsif (found = SOCKET.match(url))
        _, login, path, query = found.captures
        at = [nil, nil, decode(path), nil]
      else
        wrong
      end
      settings = query(query)
      Profile::Target.new(*at, *login(login, settings), database(db, settings), nil)
    end

    def tls(scheme)
      OpenSSL::SSL::SSLContext.new.tap(&:set_params) if %w[rediss valkeys].include?(scheme.downcase)
    end

    def query(text)
      pairs = (text || "").split("&", -1).map { |pair| pair.split("=", 2) }
      wrong unless pairs.all? { |name, value| %w[db username password].include?(name) && value && !value.include?("+") } &&
                   pairs.map(&:first).uniq.size == pairs.size
      pairs.to_h
    end

    def database(path, settings)
      in_path = path&.delete("/")
      in_path = nil if in_path&.empty?
      said = [in_path, settings["db"]].compact.map { |each| number(each, 0..2**31 - 1) }.uniq
      wrong if said.size > 1
      said.first || 0
    end

    def login(text, settings)
      user, password = text&.split(":", 2)&.map { |part| decode(part) }
      password ||= "" if user && !user.empty?
      user, password = nil if [user, password].all? { |part| part.nil? || part.empty? }
      named = %w[username password].map { |word| settings[word] && decode(settings[word]) }
      wrong if (user || password) && named.any?
      return named if named.any?

      [user.nil? || user.empty? ? nil : user, password]
    end

    def number(text, range)
      wrong unless text.to_s.match?(/\A\d{1,10}\z/) && range.cover?(text.to_i)
      text.to_i
    end

    def decode(text)
      wrong if text.match?(/%(?!\h\h)/)
      text.b.gsub(/%(\h\h)/) { $1.hex.chr }.force_encoding("UTF-8").tap { |each| wrong unless each.valid_encoding? }
    end

    def wrong = raise(ArgumentError, "dlock: the URL of a server is redis://user:password@host:port/db; " \
                                     "another one is not understood")
  end
end
