# frozen_string_literal: true

require "minitest/autorun"
require_relative "server"

# Life decides for a named session, Kept for a hold of it. They need no server, clock or socket. Times are ms, and a
# session is certain until 2 ms before its timeout ends.
class LivesTest < Minitest::Test
  def life(now = 0, timeout: 900) = Dlock::Life.new(now, timeout)

  def opened(sent = 0, answered = sent + 1)
    life(sent).tap { |life| life.sends(sent) && life.ok(answered) }
  end

  def kept(life, lease: 2700, max_hold: nil)
    Dlock::Kept.new(life, 0, Dlock::Options.from(lease: lease / 1000.0, max_hold: max_hold && max_hold / 1000.0))
  end

  def test_the_time_counts_from_the_sending
    life = life(5)
    refute life.claims?(5)
    assert_equal "NX", life.sends(10)
    assert life.ok(200)
    assert_equal [1, 908, 310], [life.openings, life.until, life.due]
    assert_equal "XX", life.sends(310)
    refute life.ok(320)
    assert_equal [1208, 610], [life.until, life.due]
  end

  def test_an_answer_that_comes_too_late_opens_nothing_and_revives_nothing
    life = opened(0, 900)
    refute life.claims?(900)
    assert_equal "XX", life.sends(900)
    life.ok(901)
    assert_equal 1798, life.until
    life.sends(1200)
    refute life.ok(1798)
    assert_equal :lost, life.passes(1798)
    refute life.claims?(1799)
  end

  def test_a_heartbeat_without_an_answer_does_not_change_the_certain_end
    life = opened
    life.sends(300)
    life.cut(450)
    assert_equal [898, 480], [life.until, life.due]
    assert life.claims?(897)
    assert_equal :lost, life.passes(898)
  end

  def test_a_session_that_the_server_does_not_know_is_opened_again
    life = opened
    life.sends(300)
    life.unknown(310)
    assert_equal ["NX", 898], [life.sends(life.due), life.until]
    life.cut(460) # The answer was lost.
    assert_equal "NX", life.sends(490)
    life.unknown(495, open: true)
    assert_equal "XX", life.sends(495)
    assert life.ok(500)
    assert_equal [2, 1393], [life.openings, life.until]
  end

  def test_a_hold_is_certain_with_its_session_and_no_longer_than_its_cap
    life = opened
    assert_equal 898, kept(life).until
    hold = kept(life, lease: 500, max_hold: 500)
    assert_equal 498, hold.until
    assert_equal :lost, hold.passes(498)
    life.sends(300)
    life.ok(301)
    refute hold.claims?(302)
    assert kept(life).claims?(1197)
  end

  def test_heartbeats_do_not_change_the_certain_end_of_an_unbound_hold
    life = opened
    hold = kept(life)
    hold.unbind(life.until)
    life.sends(300)
    life.ok(301)
    assert_equal 898, hold.until
    hold.bound(302)
    assert_equal 1198, hold.until
  end

  def test_a_hold_that_is_bound_too_late_stays_lost
    life = opened
    hold = kept(life)
    hold.unbind(life.until)
    life.sends(300)
    life.ok(301)
    hold.bound(898)
    assert_equal [:lost, 898], [hold.state, hold.until]
    refute hold.claims?(899)
  end

  def test_a_cap_is_asked_for_before_it_may_end_the_hold
    life = opened(0)
    hold = kept(life)
    refute hold.cap_near?(2698)
    assert hold.cap_near?(2699)
    hold.capped(1000, 500)
    assert_equal 898, hold.until
    life.sends(800)
    life.ok(801)
    assert_equal 1498, hold.until
    refute hold.cap_near?(5000)
    hold.capped(1000, nil)
    assert_equal 1698, hold.until
  end

  def test_a_closed_session_keeps_nothing
    life = opened
    hold = kept(life)
    life.release
    refute hold.claims?(2)
    assert_equal :lost, hold.state
  end
end

# Locks that a heartbeat keeps.
class SessionsTest < Minitest::Test
  include OnServer

  def session(**options, &block) = (@locks ||= locks).session(timeout: 3, **options, &block)

  def lock(session, name = key, **options, &block) = @locks.lock(name, session: session, **options, &block)

  def end_on_server(session) = redis.call("DLOCK.SESSION", session.id, "CLOSE")

  def test_the_locks_of_a_session_need_no_renewals_and_end_with_it
    losing("DLOCK.RENEW") do |url, renewals|
      session = (@locks = Dlock.new(url)).session(timeout: 2)
      refute_predicate session, :open?
      holds = Array.new(30) { |number| lock(session, "#{key}:#{number}", lease: 0.3) }
      assert_predicate session, :open?
      # Longer than the timeout: only heartbeats keep the holds.
      sleep 2.1
      assert holds.all?(&:held?)
      assert_empty renewals
      holds.first.release
      session.close
      refute holds.any?(&:held?)
      assert_raises(Dlock::Lost) { holds.last.release }
      assert_raises(Dlock::Released) { lock(session) }
    end
    30.times { |number| assert_empty info("#{key}:#{number}") }
  end

  def test_the_end_of_its_block_closes_a_session
    hold = session { |session| lock(session) }
    assert_empty info
    assert hold.wait_lost(10)
    failure = assert_raises(KeyError) { session { raise KeyError } }
    assert_nil Dlock.release_error(failure)
  end

  def test_a_lock_that_ended_on_the_server_is_lost_and_the_session_goes_on
    told = Thread::Queue.new
    session do |session|
      hold = lock(session, on_loss: ->(lost) { told << lost })
      end_on_server(session)
      assert_same hold, told.pop
      assert_predicate hold, :lost?
      assert_raises(Dlock::Lost) { hold.release }
      lock(session, &:check!)
      refute_predicate session, :lost?
    end
  end

  def test_a_lock_that_was_deleted_is_lost_and_the_others_are_not
    session do |session|
      deleted, held = lock(session), lock(session, "#{key}:other")
      redis.del(key)
      assert deleted.wait_lost(10)
      held.check!
    end
  end

  # Heartbeats go on, and tell how many locks the server has. Nobody learns which ones.
  def believed_no_longer(**how)
    losing("DLOCK.RENEW", Always.new, **how) do |url, lost|
      locks = Dlock.new(url)
      locks.session(timeout: 3) do |session|
        holds = ["", ":other"].map { |ending| locks.lock(key + ending, session: session) }
        redis.del(key)
        certain = session.life.until
        soon("a heartbeat has found it, and the locks are not bound") { lost.any? }
        soon("heartbeats go on") { session.life.until > certain }
        assert holds.all? { |hold| hold.until <= certain }, "they do not stand for the locks"
        assert holds.all? { |hold| hold.wait_lost(10) }
        refute_predicate session, :lost?
      end
    end
  end

  def test_a_lock_that_the_server_may_lack_is_lost_if_the_answer_to_its_binding_is_lost = believed_no_longer

  def test_a_lock_that_the_server_may_lack_is_lost_if_its_binding_is_refused
    believed_no_longer(instead: "-NOREPLICAS Not enough good replicas to write.\r\n" * 2, refused: true)
  end

  def test_a_wait_finds_the_session_that_was_opened_again
    session do |session|
      held = lock(session)
      other = Dlock.new(URL).lock("#{key}:other", lease: 600)
      # The session waits for this lock when it ends on the server.
      waiting = Thread.new { lock(session, "#{key}:other") { |hold| hold.check! && :done } }
      waiters 1, "#{key}:other"
      end_on_server(session)
      assert held.wait_lost(10)
      waiters 1, "#{key}:other"
      other.release
      assert_equal :done, waiting.value
    end
  end

  def test_answers_that_are_lost_are_asked_for_again
    %w[NX XX].each do |option|
      losing(option) do |url, lost|
        locks = Dlock.new(url)
        locks.session(timeout: 3) do |session|
          locks.lock(key, session: session) do |hold|
            soon("#{option} is lost") { lost.any? }
            soon("a heartbeat is answered") { hold.remaining > 2.3 }
          end
        end
      end
    end
    free
  end

  def test_a_refused_release_is_sent_again
    losing("DLOCK.RELEASE", instead: "-READONLY for a while\r\n", refused: true) do |url,|
      locks = Dlock.new(url)
      locks.session(timeout: 3) do |session|
        session.owe([["DLOCK.RELEASE", key, locks.lock(key, lease: 600, session: session).owner, "ALL"]])
        free
      end
    end
  end

  # The server writes nothing for a moment. The caller cannot release the lock again.
  def test_a_session_sends_a_release_again_that_a_server_refused_to_write
    losing("DLOCK.RELEASE", instead: "-NOREPLICAS Not enough good replicas to write.\r\n", refused: true) do |url,|
      locks = Dlock.new(url)
      locks.session(timeout: 3) do |session|
        hold = locks.lock(key, lease: 600, session: session)
        assert_raises(Dlock::ServerError) { hold.release }
        free
      end
    end
  end

  def test_a_release_with_an_answer_is_not_sent_again
    released = Always.new
    losing("DLOCK.RELEASE", released, instead: ":1\r\n") do |url,|
      locks = Dlock.new(url)
      locks.session(timeout: 3) do |session|
        assert_raises(Dlock::TooFewReplicas) { locks.lock(key, session: session, replicas: 1, replicas_timeout: 0.1) }
        free
        before = session.life.until
        soon("two heartbeats are answered") { session.life.until > before + 1500 }
        assert_equal 1, released.size
      end
    end
  end

  def test_a_session_without_heartbeats_is_lost
    told = Thread::Queue.new
    session = session(timeout: 3, manual: true, on_loss: ->(lost) { told << lost })
    hold = lock(session)
    sleep 1.5
    session.beat
    soon("the beat is answered") { hold.remaining > 1.6 }
    assert hold.wait_lost(10)
    assert_same session, told.pop
    assert_predicate session, :lost?
    assert_raises(Dlock::Lost) { lock(session) }
    free
    session.close
  end

  def test_a_manual_session_repeats_no_heartbeat_without_a_beat
    losing("XX", refused: true) do |url, lost|
      locks = Dlock.new(url)
      locks.session(timeout: 3, manual: true) do |session|
        hold = locks.lock(key, session: session)
        certain = session.life.until
        sleep 1.1
        session.beat
        soon("the heartbeat is lost") { lost.size.positive? }
        assert hold.wait_lost(10)
        assert_equal certain, session.life.until
      end
    end
  end

  def test_a_manual_session_repeats_a_heartbeat_after_the_next_beat
    losing("XX", refused: true) do |url, lost|
      locks = Dlock.new(url)
      locks.session(timeout: 6, manual: true) do |session|
        hold = locks.lock(key, session: session)
        certain = session.life.until
        soon("a beat after the lost heartbeat is answered") do
          session.beat
          session.life.until > certain
        end
        assert_predicate hold, :held?
        assert_equal 1, lost.size
      end
    end
  end

  def test_a_cap_ends_a_hold
    session do |session|
      hold = lock(session, lease: 0.5, max_hold: 2)
      assert_includes 0.6..2, hold.remaining
      # Granted when the cap has ended the hold on the server.
      locks.lock(key) { refute hold.held? }
      assert hold.wait_lost(10)
    end
  end

  def test_a_cap_of_the_server_ends_a_hold
    redis.config(:set, "dlock.max-hold", 1500)
    session(timeout: 0.45) do |session|
      hold = lock(session, lease: 1)
      # Granted when the cap has ended the hold on the server.
      locks.lock(key, lease: 1) { refute hold.held? }
      assert hold.wait_lost(10)
    end
  ensure
    redis.config(:set, "dlock.max-hold", 0)
  end

  def test_the_end_of_a_session_loses_readers_slots_and_several_locks
    session do |session|
      holds = [@locks.read(key, session: session), @locks.slot("#{key}:slot", 2, session: session),
               @locks.lock_all(["#{key}:a", "#{key}:b"], session: session)]
      end_on_server(session)
      assert holds.all? { |hold| hold.wait_lost(10) }
    end
  end

  def test_a_longer_and_a_shorter_lease
    session do |session|
      # The lease stays at least three timeouts, 9 s, and the hold is certain for one timeout at most.
      hold = lock(session)
      assert_operator hold.extend(0.3).remaining, :>, 1
      assert_operator redis.pttl(key), :>, 8000
      assert_operator hold.extend(60).remaining, :<=, 3
      assert_operator redis.pttl(key), :>, 50_000
      hold.release
    end
  end

  def test_a_process_that_is_killed_frees_its_locks
    read, write = IO.pipe
    pid = fork do
      locks = Dlock.new(URL)
      locks.lock(key, lease: 600, session: locks.session(timeout: 1))
      write.puts "held"
      sleep
    end
    assert_equal "held\n", read.gets
    Process.kill(:KILL, pid)
    Process.wait(pid)
    free
  end

  def test_a_fork_has_no_part_in_the_session
    session do |session|
      hold = lock(session)
      read, write = IO.pipe
      pid = fork do
        write.puts [session.open?, hold.held?].inspect
        write.puts((lock(session, "#{key}:other") rescue $!.class)) # rubocop:disable Style/RescueModifier
        session.close
        exit!
      end
      assert_equal ["[false, false]\n", "Dlock::Released\n"], Array.new(2) { read.gets }
      Process.wait(pid)
      hold.check!
    end
  end

  def test_what_is_not_understood_is_refused
    [{ timeout: 0.2 }, { timeout: 3601 }, { timeout: "3" }, { manual: 1 }, { on_loss: 1 }, { lease: 3 }].each do |options|
      assert_raises(ArgumentError) { locks.session(**options) }
    end
    session do |session|
      assert_raises(ArgumentError) { locks.lock(key, session: session) }
      assert_raises(ArgumentError) { lock(session, renew: false) }
      assert_raises(ArgumentError) { @locks.once(key, every: 60, session: session) { flunk } }
    end
    assert_raises(ArgumentError) { locks.once(key, every: 60, session: true) { flunk } }
  end

  def test_a_server_without_the_module_is_refused_each_time
    plain = Dlock.new("unix://#{ENV.fetch("DLOCK_TEST_PLAIN")}")
    session = plain.session(timeout: 3)
    2.times { assert_raises(Dlock::ModuleMissing) { plain.lock(key, session: session) } }
    session.close
  end

  def test_without_a_server_nothing_is_held
    port = TCPServer.open("127.0.0.1", 0) { |listening| listening.addr[1] }
    nowhere = Dlock.new("redis://127.0.0.1:#{port}")
    session = nowhere.session(timeout: 3)
    error = assert_raises(Dlock::Unreachable) { nowhere.lock(key, wait: 0.1, session: session) }
    assert_includes error.message, "Connection refused"
    session.close
  end
end

# Several locks at once.
class SeveralTest < Minitest::Test
  include OnServer

  def names(*ends) = ends.map { |each| "#{key}:#{each}" }

  def test_all_of_several_locks_or_none
    [false, true].each do |session|
      hold = locks.lock_all(names(:a, :b), session: session)
      names(:a, :b).each { |name| assert_equal hold.token, info(name)["token"] }
      assert_equal names(:a, :b).join(" "), hold.name
      assert_raises(Dlock::NotGranted) { locks.lock_all(names(:b, :c), wait: 0) }
      assert_empty info(names(:c).first)
      hold.extend(60).release
      names(:a, :b).each { |name| assert_empty info(name) }
    end
  end

  def test_several_locks_are_renewed_and_lost_together
    lost = nil
    assert_raises(Dlock::Lost) do
      locks.lock_all(names(:a, :b), lease: 2) do |hold|
        sleep 2.5
        hold.check!
        redis.del(names(:b).first)
        lost = hold.wait_lost(10)
      end
    end
    assert lost
    assert_empty info(names(:a).first)
  end

  def test_the_order_of_the_names_does_not_matter_and_an_ended_wait_leaves_nothing
    turns = 0
    [%i[a b], %i[b a]].map do |order|
      Thread.new { 20.times { locks.lock_all(names(*order)) { turns += 1 } } }
    end.each(&:join)
    assert_equal 40, turns
    held = locks.lock(names(:b).first, lease: 600)
    assert_raises(Timeout::Error) { Timeout.timeout(0.2) { locks.lock_all(names(:a, :b), lease: 600) } }
    free names(:a).first
    held.release
    free names(:b).first
  end

  def test_lost_answers_about_several_locks_are_asked_for_again
    %w[DLOCK.MACQUIRE DLOCK.RELEASE].each do |word|
      losing(word) { |url,| Dlock.new(url).lock_all(names(:a, :b), lease: 600, &:check!) }
      names(:a, :b).each { |name| free name }
    end
  end

  def test_an_old_grant_is_confirmed
    held = locks.lock(names(:b).first, lease: 600)
    waiting = Thread.new { locks.lock_all(names(:a, :b), lease: 4, wait: 20) { |hold| hold.check! && hold.remaining } }
    waiters 1, names(:b).first
    sleep 1.5
    held.release
    # Counted from the request, 2.5 s of the lease would be left: a renewal has confirmed the grant.
    assert_operator waiting.value, :>, 2.6
  end

  def test_what_is_not_understood_is_refused
    ["a", [], ["a", ""], %w[a a], Array.new(65) { |number| "a#{number}" }, nil].each do |names|
      assert_raises(ArgumentError) { locks.lock_all(names) }
    end
    assert_raises(ArgumentError) { locks.lock_all(["a"], mode: :read) }
    assert_raises(ArgumentError) { locks.lock_all(["a"], slots: 2) }
  end
end
