# frozen_string_literal: true

require "minitest/autorun"
require "minitest/mock"
require "connection_pool"
require "pp"
require "tempfile"
require "timeout"
require_relative "server"

# The promises of docs/clients.md that neither the histories (histories.rb) nor the conformance suite check.
class LocksTest < Minitest::Test
  include OnServer

  def test_a_block_has_the_lock_until_it_ends
    result = locks.lock(key) do |hold|
      assert_equal hold.token, info["token"]
      assert_operator hold.remaining, :>, 29
      assert_nil locks.try(key)
      :done
    end
    assert_equal :done, result
    assert_empty info
  end

  def test_the_error_of_a_block_is_raised_and_keeps_the_error_of_the_release
    failure = assert_raises(KeyError) do
      locks.lock(key) do
        redis.del(key)
        raise KeyError, "the body's"
      end
    end
    assert_instance_of Dlock::Lost, Dlock.release_error(failure)
    assert_raises(Dlock::Lost) { locks.lock(key) { redis.del(key) } }
  end

  def test_a_block_that_is_left_by_break_or_throw_releases
    locks.lock(key) { break }
    catch(:out) { locks.lock(key) { throw :out } }
    assert_empty info
  end

  def test_try_raises_the_not_granted_of_another_lock_in_its_block
    other = locks.lock("#{key}:other")
    assert_raises(Dlock::NotGranted) { locks.try(key) { locks.lock("#{key}:other", wait: 0) } }
    other.release
  end

  def test_a_limit_ends_a_wait
    held = locks.lock(key)
    began = Dlock.now
    refused { locks.lock(key, wait: 0.2) }
    assert_operator Dlock.now - began, :>=, 199
    held.release
  end

  def test_a_timeout_leaves_the_queue
    held = locks.lock(key, lease: 600)
    [false, true].each do |session|
      assert_raises(Timeout::Error) { Timeout.timeout(0.1) { locks.lock(key, session: session) } }
      waiters 0
    end
    held.release
    free
  end

  def test_a_thread_that_is_killed_leaves_the_queue
    held = locks.lock(key, lease: 600)
    waiting = Thread.new { locks.lock(key, lease: 600) { flunk } }
    waiters 1
    waiting.kill
    waiters 0
    held.release
    free
  end

  def test_extend_sets_the_time_left_and_raises_for_a_lost_lock
    hold = locks.lock(key, lease: 30, renew: false)
    assert_in_delta 60, hold.extend(60).remaining, 1
    assert_in_delta 2, hold.extend(2).remaining, 0.5
    redis.del(key)
    assert_raises(Dlock::Lost) { hold.extend }
    refute hold.held?
    assert_raises(Dlock::Lost) { hold.check! }
    assert_raises(Dlock::Lost) { hold.release }
    assert_raises(Dlock::Released) { hold.release }
  end

  def test_a_shorter_lease_is_renewed_in_time
    holds = [false, true].map { |session| locks.lock("#{key}:#{session}", session: session) }
    holds.each { |hold| hold.extend(1.5) }
    sleep 2
    holds.each(&:check!).each(&:release)
  end

  def test_twenty_locks_share_a_thread_and_are_all_renewed
    before = Thread.list
    holds = Array.new(20) { |number| locks.lock("#{key}:#{number}") }
    assert_operator (Thread.list - before).size, :<=, 1
    holds.each { |hold| hold.extend(1.5) }
    sleep 2
    holds.each(&:check!).each(&:release)
  end

  # The thread stays for a second after the last lock. On a busy machine a lock may take longer, so that the next one
  # starts the thread again: up to 4 starts are accepted.
  def test_locks_one_after_the_other_share_a_thread_that_ends_afterwards
    shared = locks
    shared.lock(key) { nil } # Makes the connection, which takes a thread to resolve the server's name.
    begun = []
    TracePoint.new(:thread_begin) { begun << Thread.current }.enable do
      20.times do
        shared.lock(key) { nil }
        soon("all other threads sleep") { Thread.list.all? { |thread| thread == Thread.current || thread.stop? } }
      end
    end
    assert_operator begun.size, :<, 5
    soon("the thread of the renewals has ended") { Thread.list.none? { |thread| thread.name == "dlock-alarm" } }
  end

  def test_a_loss_is_reported_to_on_loss_and_to_wait_lost
    told = Thread::Queue.new
    hold = locks.lock(key, lease: 0.6, on_loss: ->(lost) { told << lost })
    redis.del(key)
    assert_same hold, told.pop
    assert_predicate hold, :lost?
    assert hold.wait_lost
    assert_raises(Dlock::Lost) { hold.release }
  end

  # The connection of the first copy breaks. The server executes the copy after the release.
  def test_a_request_that_arrives_after_the_release_leaves_no_hold
    [{}, { mode: :read }, { mode: :write }, { slots: 2 }, { renew: false, wait: 20 }].each do |options|
      leaves_no_hold { |client| client.lock(key, lease: 600, **options).release }
      leaves_no_hold { |client| client.lock(key, lease: 600, **options, &:check!) }
    end
    leaves_no_hold { |client| client.lock_all([key, "#{key}:other"], lease: 600).release }
  end

  def test_a_request_in_a_session_that_arrives_after_the_release_leaves_no_hold
    losing("REQUEST", refused: true) do |url, lost|
      client = Dlock.new(url)
      client.session do |session|
        client.lock(key, session: session).release
        arrives(lost.first)
        free
      end
    end
  end

  # The server writes nothing while the late releases arrive.
  def test_a_session_owes_a_late_release_that_a_server_refused_to_write
    losing("REQUEST", refused: true) do |url, lost|
      client = Dlock.new(url)
      client.session(timeout: 3) do |session|
        hold = client.lock(key, lease: 600, session: session)
        replies = [Dlock::ServerError.new("NOREPLICAS Not enough good replicas to write.")]
        sent = 0
        client.define_singleton_method(:insist) { |*words| (sent += 1) == 1 ? super(*words) : replies }
        hold.release
        arrives(lost.first)
        soon("two late releases were refused") { sent == 3 }
        client.singleton_class.remove_method(:insist)
        free
      end
    end
  end

  # The second copy gets nil: another owner has the lock. The server executes the first copy when the lock is free.
  def test_a_request_that_arrives_after_a_refusal_leaves_no_hold
    losing("REQUEST", refused: true) do |url, lost|
      held = locks.lock(key)
      refused { Dlock.new(url).lock(key, lease: 600, wait: 0) }
      held.release
      arrives(lost.first)
      free
    end
  end

  # The server executes the second copy after the release of what the first one has taken.
  def test_two_requests_that_arrive_after_a_refusal_leave_no_hold
    losing("REQUEST", FirstTwo.new, refused: true) do |url, lost|
      held = locks.lock(key)
      refused { Dlock.new(url).lock(key, lease: 600, wait: 0) }
      held.release
      lost.each do |copy|
        arrives(copy)
        free
      end
    end
  end

  # The second copy waits in the queue.
  def test_a_request_that_arrives_after_an_interrupt_leaves_no_hold
    losing("REQUEST", refused: true) do |url, lost|
      held = locks.lock(key)
      waiting = Thread.new { Dlock.new(url).lock(key, lease: 600) }
      waiters 1
      waiting.kill
      waiters 0
      held.release
      arrives(lost.first)
      free
    end
  end

  # The error that a release or an acquisition raises if the system has no room for a thread.
  def test_no_room_for_a_thread_is_no_error_of_its_own
    losing("REQUEST", refused: true) do |url,|
      client = Dlock.new(url)
      hold = client.lock(key)
      without_threads { hold.release }
    end
    losing("REQUEST", refused: true) do |url,|
      hold = Dlock.new(url).lock(key)
      redis.del(key)
      without_threads { assert_raises(Dlock::Lost) { hold.release } }
    end
    client = locks
    hold = client.lock(key)
    client.stub(:insist, ->(*) { raise Dlock::Unanswered, "nobody" }) do
      without_threads { assert_raises(Dlock::Unreachable) { hold.release } }
    end
    redis.del(key)
    losing(key, refused: true) do |url,|
      client = Dlock.new(url)
      client.lock("ruby:other").release
      without_threads { assert_raises(Dlock::Unreachable) { client.lock(key, wait: 0) } }
    end
  end

  # The lock stays for 0.3 s after its hold, and the copy arrives after that.
  def test_a_request_that_arrives_after_a_lock_that_stayed_for_a_moment_leaves_no_hold
    losing("REQUEST", refused: true) do |url, lost|
      Dlock.new(url).lock(key, lease: 600).leave(0.3)
      assert_operator redis.pttl(key), :<=, 300
      free
      arrives(lost.first)
      free
    end
  end

  # The first release has not been sent yet when another thread calls the second one. The connection of a session
  # stays, and so does a hold whose request has a copy without an answer.
  def test_a_second_release_at_the_same_time_does_not_make_the_first_one_a_loss
    losing("REQUEST", refused: true) do |url,|
      [false, true].each do |session|
        client = Dlock.new(url)
        hold = client.lock(key, lease: 600, session: session)
        goes = Thread::Queue.new
        waits = ->(*words) { goes.pop && client.exchange(*words) }
        first = Thread.new { client.stub(:insist, waits) { hold.release } }
        soon("the first release waits") { goes.num_waiting == 1 }
        assert_raises(Dlock::Released) { hold.release }
        sleep 0.1 # A late release would come after 20 ms.
        assert_equal 1, info["holders"]
        goes << true
        first.join
        free
      end
    end
  end

  def without_threads(&block) = Thread.stub(:new, ->(*) { raise ThreadError, "no room" }, &block)

  def leaves_no_hold
    losing("REQUEST", refused: true) do |url, lost|
      yield Dlock.new(url)
      assert_empty info
      arrives(lost.first)
      free
      free("#{key}:other")
    end
  end

  # The lock is lost at the end of a lease of 0.3 s, or because its key is deleted.
  def test_a_release_of_a_lost_lock_is_an_error_even_if_its_reply_is_lost
    [0.3, 60].each do |lease|
      losing("DLOCK.RELEASE") do |url, lost|
        hold = Dlock.new(url).lock(key, lease: lease, renew: false)
        redis.del(key) && assert_raises(Dlock::Lost) { hold.extend } if lease == 60
        assert hold.wait_lost
        locks.lock(key) { assert_raises(Dlock::Lost) { hold.release } }
        assert_equal 1, lost.size
      end
    end
  end

  # The relay sends the error in place of the reply, and the repeated release gets nil. An agent without a majority may
  # have executed the first one, so nil is no loss. A server that is loading has executed nothing, so nil is a loss.
  def test_an_agent_without_a_majority_may_have_released_the_lock
    losing("DLOCK.RELEASE", instead: "-LOADING no majority has answered\r\n") do |url, lost|
      Dlock.new(url).lock(key).release
      assert_equal 1, lost.size
    end
    losing("DLOCK.RELEASE", instead: "-LOADING Redis is loading the dataset in memory\r\n") do |url,|
      assert_raises(Dlock::Lost) { Dlock.new(url).lock(key).release }
    end
  end

  def test_a_lock_without_renewal_is_lost_at_its_end
    hold = locks.lock(key, lease: 0.3, renew: false)
    refute hold.wait_lost(0.01)
    assert hold.wait_lost
    assert_equal 0, hold.remaining
  end

  def test_readers_share
    first = locks.read(key)
    second = locks.read(key, wait: 0)
    assert_raises(Dlock::NotGranted) { locks.write(key, wait: 0) }
    [first, second].each(&:release)
    locks.write(key, wait: 0, &:check!)
  end

  def test_each_place_of_a_semaphore_has_a_number
    held = Array.new(3) { locks.slot(key, 3) }
    assert_equal [0, 1, 2], held.map(&:slot)
    assert_raises(Dlock::NotGranted) { locks.slot(key, 3, wait: 0) }
    held[1].release
    assert_equal 1, locks.slot(key, 3) { |hold| hold.slot }
    held.values_at(0, 2).each(&:release)
  end

  def test_once_runs_a_block_once_in_a_period_even_if_it_fails
    ran = 0
    assert locks.once(key, every: 2) { ran += 1 }
    refute(locks.once(key, every: 2) { ran += 1 })
    assert_raises(KeyError) { locks.once("#{key}:failed", every: 60) { raise KeyError } }
    refute(locks.once("#{key}:failed", every: 60) { ran += 1 })
    free
    assert locks.once(key, every: 60) { ran += 1 }
    assert_equal 2, ran
    assert_in_delta 54_000, redis.pttl(key), 1000 # nine tenths of `every`
  end

  def test_threads_share_a_client_and_are_granted_in_order
    shared = locks
    granted = []
    held = shared.lock(key)
    waiting = Array.new(5) do |number|
      Thread.new { shared.lock(key) { granted << number } }.tap { waiters number + 1 }
    end
    held.release
    waiting.each(&:join)
    assert_equal [0, 1, 2, 3, 4], granted
  end

  def test_the_owner_is_the_label_or_the_process_and_thread_and_a_random_number
    [[nil, /\A\S+:#{Process.pid}:\d+:\h{16}\z/], ["worker", /\Aworker:\h{16}\z/]].each do |label, form|
      locks.lock(key, owner: label) { |hold| assert_match form, hold.owner }
    end
  end

  # Bytes that are no text, text in several encodings, text that is invalid in its encoding, and a symbol.
  NAMES = ["\xFF\xFE".b, "n\u00E4me", "\xFF", "n\u00E4me".encode("ISO-8859-1"), "n\u00E4me".encode("UTF-16LE"),
           "n\u00E4me".dup.force_encoding("UTF-7"), :"n\u00E4me"].freeze

  def test_names_may_be_in_any_encoding
    gone = Dlock.new("redis://127.0.0.1:1")
    NAMES.each do |name|
      locks.lock(name) do |hold|
        assert_predicate hold.name, :valid_encoding?
        assert_nil locks.try(name)
        assert_match "was not granted", assert_raises(Dlock::NotGranted) { locks.lock(name, wait: 0) }.message
      end
      assert_raises(Dlock::Lost) { locks.lock(name) { redis.del(name.to_s.b) } }
      assert_raises(Dlock::Unreachable) { gone.lock(name, wait: 0.01) }
    end
  end

  def test_names_of_several_locks_may_differ_in_their_encodings
    several = NAMES.reject { |name| name.is_a?(Symbol) || name.encoding.dummy? }
    locks.lock_all(several) do |hold|
      assert_equal "\uFFFD\uFFFD n\u00E4me \uFFFD n\u00E4me n\u00E4me", hold.name
      assert_raises(Dlock::NotGranted) { locks.lock_all(several, wait: 0) }
    end
    assert_raises(ArgumentError) { locks.lock_all(["\u00E4", "\u00E4".b]) }
    assert_raises(ArgumentError) { locks.lock(key, owner: "\u65E5\u672C".encode("UTF-16LE")) }
  end

  def test_invalid_options_and_names_are_refused
    wrong = [{ lease: 0.002 }, { lease: "1" }, { wait: -1 }, { lease: 0.2, session: true }, { owner: "" }, { mode: :other },
             { owner: "a\n" }, { owner: "x" * 48 }, { replicas: -1 }, { slots: 0 }, { renew: nil }, { lease: Float::NAN },
             { session: 1 }, { timeout: 3 }, { slots: 2, mode: :read }, { wait: Float::INFINITY }]
    wrong.each { |options| assert_raises(ArgumentError, options.inspect) { locks.lock(key, **options) } }
    ["", nil, 1].each { |bad| assert_raises(ArgumentError) { locks.lock(bad) } }
    assert_raises(Dlock::ServerError) { locks.lock(key, lease: 30, max_hold: 20) }
  end
end

# Holds belong to a process.
class ProcessesTest < Minitest::Test
  include OnServer

  # Runs a block in a forked process, which then sleeps. Returns its id, and a pipe with what the block writes.
  def elsewhere
    read, write = IO.pipe
    pid = fork do
      read.close
      @redis = nil
      yield write
      sleep
    end
    write.close
    [pid, read]
  end

  def kill(pid)
    Process.kill(:KILL, pid)
    Process.wait(pid)
  end

  def test_a_session_ends_with_its_process_even_if_a_child_lives
    pid, said = elsewhere do |out|
      Dlock.new(URL).lock(key, session: true, lease: 600)
      out.puts fork { sleep 60 }
    end
    child = Integer(said.gets)
    assert_equal 1, info["holders"]
    kill(pid)
    free
  ensure
    Process.kill(:KILL, child) if child
  end

  def test_a_session_ends_with_a_process_that_becomes_a_daemon
    said = Tempfile.new
    program = <<~RUBY
      require "dlock"
      locks = Dlock.new(#{URL.inspect})
      hold = locks.lock(#{key.inspect}, session: true, lease: 600)
      Process.daemon(true, true)
      locks.lock(#{"#{key}:daemon".inspect}) { |own| File.write(#{said.path.inspect}, [hold.held?, own.held?, Process.pid].join(" ")) }
      sleep 60
    RUBY
    assert system("ruby", "-I", File.expand_path("../lib", __dir__), "-e", program)
    soon("the daemon tells") { File.size?(said.path) }
    parent, own, daemon = File.read(said.path).split
    assert_equal %w[false true], [parent, own]
    free
  ensure
    Process.kill(:KILL, Integer(daemon)) if daemon
  end

  def test_a_forked_process_does_not_hold_the_lock_of_its_parent
    hold = locks.lock(key, session: true)
    pid, said = elsewhere do |out|
      out.puts [hold.held?, hold.lost?, hold.remaining].inspect
      out.puts((hold.release rescue $!.class)) # rubocop:disable Style/RescueModifier
      out.puts Dlock.new(URL).try(key).inspect
    end
    assert_equal ["[false, true, 0.0]\n", "Dlock::Released\n", "nil\n"], Array.new(3) { said.gets }
    kill(pid)
    hold.check!
    hold.release
  end

  def test_the_locks_of_a_fork_are_renewed
    hold = locks.lock(key)
    pid, said = elsewhere do |out|
      child = Dlock.new(URL).lock("#{key}:child", lease: 1.5)
      sleep 2
      out.puts child.held?
      child.release
    end
    assert_equal "true\n", said.gets
    kill(pid)
    hold.check!
    hold.release
  end

  Closing = Struct.new(:closed) { def close = self.closed = true }

  # Makes connections to which no variable refers any more.
  def garbage
    sockets = Array.new(5000) { Closing.new }
    sockets.each do |socket|
      wire = Dlock::Wire.allocate
      wire.instance_variable_set(:@socket, socket)
      Dlock::Wire.remember(wire)
    end
    nil
  end

  def test_a_fork_closes_no_connection_that_is_garbage
    # The number of new objects varies how far the collector has swept at the fork.
    20.times do |number|
      garbage
      GC.start(immediate_sweep: false)
      Array.new(400 * number) { Object.new }
      Process.wait(fork { exit!(true) })
      assert_predicate $?, :success?
    end
  end

  # The program gives up while its request is granted. The server gets no release on the connection of the request, so
  # that only the cleanup in the background frees the lock.
  def test_the_end_of_a_program_waits_for_its_cleanup
    losing("DLOCK.ACQUIRE", instead: SILENCE) do |url,|
      read, write = IO.pipe
      pid = fork do
        waiting = Thread.current
        Thread.new { read.gets && waiting.raise(Timeout::Error) }
        Dlock.new(url).lock(key, lease: 600)
      rescue Timeout::Error
        exit
      end
      soon("the lock is granted") { info["holders"] == 1 }
      write.puts "enough"
      Process.wait(pid)
      assert_empty info
    end
  end
end

# Programs that end while a server does not answer, or whose locks were acquired while interrupts were deferred.
class EndsTest < Minitest::Test
  include OnServer

  # Fails unless a program that does this ends within 10 s after that.
  def ends
    read, write = IO.pipe
    pid = fork do
      @redis = nil
      yield
      write.puts "done"
      exit
    end
    assert_equal "done\n", read.gets
    soon("the program has ended", 10) { Process.wait(pid, Process::WNOHANG) }
  rescue Minitest::Assertion
    Process.kill(:KILL, pid)
    Process.wait(pid)
    raise
  end

  def test_a_program_ends_although_its_release_has_no_answer
    losing("DLOCK.RELEASE", Always.new, instead: "-LOADING Redis is loading the dataset in memory\r\n") do |url,|
      ends { assert_raises(Dlock::Unreachable) { Dlock.new(url).lock(key, lease: 60) { nil } } }
    end
  end

  def test_a_program_ends_although_its_locks_were_acquired_while_interrupts_were_deferred
    [false, true, :named].each do |session|
      ends do
        client = Dlock.new(URL)
        Thread.handle_interrupt(Object => :never) do
          client.lock(key, session: session == :named ? client.session : session, on_loss: ->(_lost) { sleep })
        end
        redis.del(key) if session # The callback begins.
        sleep 0.5
      end
      redis.del(key)
    end
  end
end

# A primary that is demoted during an acquisition and keeps its connections. Only a new connection leads to another one.
class DemotionsTest < Minitest::Test
  include OnServer

  # A relay whose first connection answers all commands with this word with an error, and its other connections none.
  def demoting(word, error)
    TCPServer.open("127.0.0.1", 0) do |listening|
      serving = Thread.new do
        lost = Always.new
        replies = "-#{error}\r\n" * (word == "RENEW" ? 2 : 1) # A CHECK follows the RENEW.
        loop do
          relay(listening.accept, TCPSocket.new(HOST, PORT), word, lost, replies, true)
          lost = [nil]
        end
      end
      yield Dlock.new("redis://127.0.0.1:#{listening.addr[1]}")
    ensure
      serving.kill
    end
  end

  ERRORS = ["READONLY You can't write against a read only replica.",
            "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"].freeze

  def test_a_request_leaves_a_server_that_was_demoted
    [[ERRORS.first, {}], *ERRORS.product([{ session: true }])].each do |error, options|
      demoting("ACQUIRE", error) { |client| client.lock(key, wait: 20, **options, &:check!) }
      free
    end
  end

  # The server has granted the request that it answers with UNBLOCKED, and binds the hold to the connection.
  def test_a_request_with_a_session_that_may_be_granted_is_repeated_as_another_owner
    losing("REQUEST", instead: "-#{ERRORS.last}\r\n") do |url,|
      hold = Dlock.new(url).lock(key, wait: 20, session: true)
      sleep 0.1
      assert_predicate hold, :held?
      assert_equal hold.token, info["token"]
      hold.release
    end
  end

  # The grant is older than a third of its lease, so a renewal confirms it.
  def test_a_renewal_that_confirms_a_grant_leaves_a_server_that_was_demoted
    [{}, { session: true }].each do |options|
      demoting("RENEW", ERRORS.first) do |client|
        held = locks.lock(key)
        distrusted = 0
        waiting = Thread.new do
          client.stub(:distrust, -> { distrusted += 1 }) { client.lock(key, lease: 1.5, wait: 20, **options, &:check!) }
        end
        waiters 1
        sleep 0.7
        held.release
        waiting.join
        free
        assert_operator distrusted, :>, 0, "a Sentinel is asked again"
      end
    end
  end
end

# The settings that the gem takes from the user's client: address, database, login, name, Sentinels, pool.
class ProfilesTest < Minitest::Test
  include OnServer

  def test_the_database_is_the_one_that_the_client_has_selected
    client = Redis.new(host: HOST, port: PORT)
    dlock = Dlock.new(client)
    dlock.lock(key) { refute_empty info }
    client.select(6)
    hold = dlock.lock(key)
    assert_empty info
    assert_equal 1, Redis.new(host: HOST, port: PORT, db: 6).exists(key)
    hold.release
  end

  def test_the_login_and_the_name_are_those_of_the_client
    redis.call("ACL", "SETUSER", "ruby", "on", ">secret", "+@all", "~*")
    client = Redis.new(host: HOST, port: PORT, username: "ruby", password: "secret", id: "worker")
    Dlock.new(client).lock(key, session: true) do
      assert_includes redis.call("CLIENT", "LIST").lines.grep(/user=ruby/).join, "name=worker"
    end
    refute_includes Dlock::Url.parse("redis://:secret@a").inspect, "secret"
  ensure
    redis.call("ACL", "DELUSER", "ruby")
  end

  # Runs a Sentinel that names the server as the primary, until the block ends.
  def sentinel
    TCPServer.open("127.0.0.1", 0) do |listening|
      answers = Thread.new do
        while (connection = listening.accept)
          connection.readpartial(1000)
          connection.write("*2\r\n$#{HOST.size}\r\n#{HOST}\r\n$#{PORT.to_s.size}\r\n#{PORT}\r\n")
        end
      end
      yield [{ host: "127.0.0.1", port: listening.addr[1] }]
    ensure
      answers.kill
    end
  end

  def test_a_sentinel_is_asked_also_after_the_client_has_connected
    sentinel do |sentinels|
      client = Redis.new(host: "locks", sentinels: sentinels)
      dlock = Dlock.new(client)
      dlock.lock(key) { refute_empty info }
      client.ping
      dlock.lock(key) { refute_empty info }
    end
  end

  def in_time(limit)
    began = Dlock.now
    assert_raises(Dlock::Unreachable) { yield limit }
    assert_operator Dlock.now - began, :<, (limit * 1000) + 1500
  end

  def test_a_sentinel_that_hangs_does_not_outlast_the_limit
    TCPServer.open("127.0.0.1", 0) do |hanging|
      client = Redis.new(host: "locks", sentinels: [{ host: "127.0.0.1", port: hanging.addr[1] }])
      in_time(0.3) { |limit| Dlock.new(client).lock(key, wait: limit) }
    end
  end

  def test_a_pool_without_a_free_client_does_not_outlast_the_limit
    pool = ConnectionPool.new(size: 1, timeout: 10) { Redis.new(host: HOST, port: PORT) }
    pool.with do
      Dlock.new(pool).lock(key, &:check!) # This thread has the only client of the pool.
      Thread.new { in_time(0.3) { |limit| Dlock.new(pool).lock(key, wait: limit) } }.join
    end
  end

  def test_objects_that_are_no_client_of_a_primary_are_refused
    [nil, Object.new, 1, Redis.new(host: HOST, role: "slave")].each do |client|
      assert_raises(ArgumentError) { Dlock.new(client) }
    end
    redis.multi do |transaction|
      assert_raises(ArgumentError) { Dlock.new(transaction) }
      transaction.ping
    end
  end

  def test_nothing_shows_the_password
    url = URL.sub("//", "//default:confidential@") # The server accepts any password.
    client = Dlock.new(url)
    client.session do |session|
      client.lock(key, session: session) do |hold|
        target = client.target(Dlock.now + 1000)
        assert_equal "confidential", target.password
        shown = [client, session, hold, target].flat_map { |each| [each.inspect, each.to_s, each.pretty_inspect] }
        assert_empty shown.grep(/confidential/)
        assert_equal "#<Dlock::Hold #{key}, token #{hold.token}>", hold.inspect
      end
    end
  end

  def test_a_server_without_the_module_is_refused
    plain = "unix://#{ENV.fetch("DLOCK_TEST_PLAIN")}"
    assert_raises(Dlock::ModuleMissing) { Dlock.new(plain).lock(key) }
  end
end

# The reasons that errors name when no server has answered in time.
class ReasonsTest < Minitest::Test
  include OnServer

  REASONS = ["LOADING the agent has to wait 42 s more", "READONLY You can't write against a read only replica.",
             "CLUSTERDOWN Hash slot not served", "MASTERDOWN Link with MASTER is down"].freeze

  # Fails unless the error names the reason, and not the password.
  def unreachable(url, reason, **options)
    error = assert_raises(Dlock::Unreachable) { Dlock.new(url).lock(key, **options) }
    assert_includes error.message, "no server answered in time: "
    assert_includes error.message, reason
    assert_includes error.cause.message, reason
    refute_includes error.full_message, "confidential"
  end

  def test_the_last_answer_of_a_server_is_the_reason
    REASONS.product([{ wait: 0.05 }, { outage: 0.1 }]).each do |reason, options|
      refusing(reason) do |url|
        [url, url.sub("user:confidential@", "")].each { |each| told(each, reason, **options) }
      end
    end
  end

  # Tries again with a limit four times as long, up to 30 s: on a busy machine the answer may come after a short limit.
  def told(url, reason, **options)
    unreachable(url, reason, **options)
  rescue Minitest::Assertion
    options = options.transform_values { |limit| limit * 4 }
    options.values.first > 30 ? raise : retry
  end

  def test_an_agent_may_take_a_second_to_say_why_its_servers_do_not_answer
    [{ wait: 0 }, { wait: 1.3 }, { outage: 1.3 }].map do |options|
      Thread.new do
        refusing(REASONS[0], after: 1.01) do |url|
          tries ||= 0
          unreachable(url.sub("user:confidential@", ""), REASONS[0], **options)
        rescue Minitest::Assertion
          # The agent answers after 1010 ms, and the client waits for 1150 ms. A busy machine may use up the difference.
          (tries += 1) < 5 ? retry : raise
        end
      end
    end.each(&:join)
  end

  # The relay answers WAIT as a server does that has become a replica after the grant: once, or always.
  def test_a_grant_whose_server_is_demoted_before_its_replicas_have_it_is_asked_for_again
    demoted = "ERR WAIT cannot be used with replica instances."
    [[[], 20, Dlock::TooFewReplicas], [Always.new, 0.5, Dlock::Unreachable]].each do |lost, wait, error|
      losing("WAIT", lost, instead: "-#{demoted}\r\n") do |url|
        assert_raises(error) { Dlock.new(url).lock(key, wait: wait, replicas: 1, replicas_timeout: 0.1) }
        soon("the lock is free") { info.empty? }
      end
    end
  end

  def test_a_release_says_why_it_has_no_answer
    losing("DLOCK.RELEASE", Always.new, instead: "-#{REASONS[0]}\r\n") do |url|
      hold = Dlock.new(url).lock(key)
      error = assert_raises(Dlock::Unreachable) { hold.release }
      assert_includes error.message, REASONS[0]
      assert_includes error.cause.message, REASONS[0]
    end
  end

  # The resolver of the server's name needs a thread, which Ruby refuses while a program ends or has too many.
  def test_without_a_thread_for_the_resolver_the_server_is_unreachable
    error = Thread.stub(:new, ->(*) { raise ThreadError, "can't alloc thread" }) do
      assert_raises(Dlock::Unreachable) { Dlock.new(URL).lock(key, wait: 0.05) }
    end
    assert_includes error.message, "can't alloc thread"
  end

  def test_without_a_server_the_refused_connection_is_the_reason
    port = TCPServer.open("127.0.0.1", 0) { |listening| listening.addr[1] }
    [{ wait: 0.05 }, { outage: 0.1 }].each do |options|
      told("redis://user:confidential@127.0.0.1:#{port}", "Connection refused", **options)
    end
  end

  def test_silence_is_the_reason_if_the_server_answers_nothing
    refusing("LOADING", after: 60) { |url| told(url, "no answer in time", wait: 0.05) }
  end
end
