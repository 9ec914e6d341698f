# frozen_string_literal: true

require_relative "../dlock"

module Dlock
  module Sidekiq
    # Server middleware of Sidekiq: runs a job under the lock that its class names. Other jobs run without a lock.
    #
    #   config.server_middleware { |chain| chain.add Dlock::Sidekiq::Locks, Dlock.new(ENV["REDIS_URL"]) }
    #
    #   class Report
    #     include Sidekiq::Job
    #     sidekiq_options dlock: { "name" => "report:%s", "wait" => 10 }
    #
    # `name` is a format string for the job's arguments; without it, the lock has the name of the class. The other keys
    # are options of `lock`, with a `wait` of 0 as the default. While another job has the lock, NotGranted makes Sidekiq
    # repeat the job later; with `"otherwise" => "skip"`, the job ends without its work.
    class Locks
      def initialize(locks)
        @locks = locks
      end

      def call(_worker, job, _queue, &work)
        return yield unless (wanted = job["dlock"])

        options = wanted.to_h.transform_keys(&:to_sym)
        options[:mode] &&= options[:mode].to_sym # Sidekiq's JSON has no symbols.
        name = format(options.delete(:name) || job["class"], *job["args"])
        skips = skips?(options.delete(:otherwise))
        under(name, { wait: 0, **options }, skips, &work)
      end

      private

      def skips?(otherwise)
        return otherwise == "skip" if [nil, "retry", "skip"].include?(otherwise)

        Options.must_be(:otherwise, "\"retry\" or \"skip\"", otherwise)
      end

      def under(name, options, skips)
        granted = false
        @locks.lock(name, **options) do |_hold|
          granted = true
          yield
        end
      rescue NotGranted
        # If the lock was granted, the error is one of the job itself, about another lock.
        raise if granted || !skips
      end
    end
  end
end
