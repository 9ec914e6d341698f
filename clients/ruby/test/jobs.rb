# frozen_string_literal: true

require "minitest/autorun"
require "active_job"
require "sidekiq"
require "sidekiq/testing"
require_relative "server"
require_relative "../lib/dlock/active_job"
require_relative "../lib/dlock/sidekiq"

ActiveJob::Base.queue_adapter = :inline
ActiveJob::Base.logger = nil
Sidekiq::Testing.server_middleware { |chain| chain.add Dlock::Sidekiq::Locks, Dlock.new(URL) }

# The locks as jobs saw them: nil if a lock was held.
Seen = Thread::Queue.new

# Requests a lock, and records the result.
def look(name) = Seen << Dlock.new(URL).try(name)&.tap(&:release)

# A job whose lock has the name of its class, and which looks at that lock.
class Plain < ActiveJob::Base
  include Dlock::ActiveJob
  locked_by Dlock.new(URL)

  def perform = look("Plain")
end

# The jobs Report and Sync, as the README shows them: tests/clients/ruby.sh has cut them out.
load ENV.fetch("DLOCK_TEST_JOBS")

# Report and Sync as jobs that look at the locks that they should have.
class WatchedReport < Report
  def perform(account) = look("report:#{account}")
end

class WatchedSync < Sync
  def perform(account) = look("sync:#{account}")
end

# Jobs run under their locks.
class JobsTest < Minitest::Test
  include OnServer

  def teardown
    Sidekiq::Worker.clear_all
    Seen.clear
  end

  def test_a_job_has_its_lock_while_it_runs
    Plain.perform_now
    assert_nil Seen.pop(true)
    assert_empty info("Plain")
  end

  def test_a_job_under_a_held_lock_is_not_performed
    locks.lock("Plain") { assert_raises(Dlock::NotGranted) { Plain.perform_now } }
    assert_empty Seen
  end

  def test_jobs_with_other_arguments_have_other_locks
    WatchedReport.perform_now(7)
    assert_nil Seen.pop(true)
    locks.lock("report:8") { assert_output("reports 7 alone\n") { Report.perform_now(7) } }
  end

  def test_an_unknown_option_is_refused_where_it_is_given
    assert_raises(ArgumentError) { Plain.locked_by(locks, lesae: 3) }
  end

  def test_the_locks_of_a_pool_are_in_its_database
    pool = ConnectionPool.new(size: 1) { Redis.new(host: HOST, port: PORT, db: 6) }
    Dlock.new(pool).lock(key) { assert_equal 1, pool.with { |client| client.exists(key) } }
  end

  def test_sidekiq_runs_a_job_whose_lock_is_free_and_frees_the_lock
    Sidekiq::Testing.inline! do
      WatchedSync.perform_async(7)
      assert_nil Seen.pop(true)
      assert_empty info("sync:7")
      locks.lock("sync:8") { assert_output("syncs 7 alone\n") { Sync.perform_async(7) } }
    end
  end

  # Sidekiq keeps the options of a job as JSON, so names and values come back as strings.
  def test_the_options_of_sidekiq_may_be_strings
    Sidekiq::Testing.inline! do
      locks.read("sync:7") do
        assert_output("syncs 7 alone\n") { Sync.set(dlock: { "name" => "sync:%s", "mode" => "read" }).perform_async(7) }
        assert_raises(Dlock::NotGranted) { Sync.set(dlock: { "name" => "sync:%s", "mode" => "write" }).perform_async(7) }
      end
      assert_raises(ArgumentError) { Sync.set(dlock: { "mode" => "other" }).perform_async(7) }
    end
  end

  def test_sidekiq_skips_or_fails_a_job_whose_lock_is_held
    Sidekiq::Testing.inline! do
      locks.lock("sync:7") do
        assert_output("") { Sync.set(dlock: { "name" => "sync:%s", "otherwise" => "skip" }).perform_async(7) }
        assert_raises(Dlock::NotGranted) { Sync.set(dlock: { "name" => "sync:%s" }).perform_async(7) }
      end
      assert_raises(ArgumentError) { Sync.set(dlock: { "otherwise" => "go on" }).perform_async(7) }
    end
  end
end
