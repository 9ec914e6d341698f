# frozen_string_literal: true

require_relative "../dlock"

module Dlock
  # Jobs that run under a lock. The job is not performed while another has it: NotGranted, for `retry_on` or `discard_on`.
  #
  #   class Report < ApplicationJob
  #     include Dlock::ActiveJob
  #     locked_by(LOCKS, wait: 10) { |account| "report:#{account}" }
  #     retry_on Dlock::NotGranted, wait: 30
  module ActiveJob
    def self.included(job)
      job.extend(Settings)
    end

    # Class methods of a job.
    module Settings
      # `locks`: what Dlock.new returns. The block makes the name of the lock from the arguments of the job; without a block
      # the name is that of the class. The options are those of `lock`, with `wait: 0` as the default.
      def locked_by(locks, **options, &name)
        Options.from(wait: 0, **options)
        around_perform do |job, work|
          lock = name ? name.call(*job.arguments) : job.class.name
          locks.lock(lock, wait: 0, **options) { |_hold| work.call }
        end
      end
    end
  end
end
