# frozen_string_literal: true

# A program that uses the gem as the gem's README says: ruby -I clients/ruby/lib adopter.rb ROLE NAME
# ../README.md describes the roles, the environment and the lines that it writes.

require "json"
require "redis"
require "dlock"

ROLE, NAME = ARGV
LEDGER = ENV.fetch("ADOPTER_LEDGER")
WRITING = Mutex.new
STOPPING = [] # has an element when the input has closed
STOPPED = ConditionVariable.new
RESTING = Mutex.new
NUMBERS = [0] # the number of the last acquisition

# The work has stopped, because its lock is lost.
Abandoned = Class.new(StandardError)
# A new version is deployed: ends the wait of a candidate.
Deployed = Class.new(StandardError)

def micros = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)

def unix = Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond)

def stopping? = STOPPING.any?

# Sleeps until the time is over or the input closes.
def rest(seconds) = RESTING.synchronize { STOPPED.wait(RESTING, seconds) unless stopping? }

# Writes a line about an acquisition, for the run that judges it. `at`: the times before and after the look at the lock.
def tell(event, number, at = [micros, micros], **fields)
  WRITING.synchronize { $stdout.write(JSON.generate({ event: event, id: number, at: at, **fields }) << "\n") }
end

# An acquisition, which writes its events. Leases and waits are in ms there; a wait of -1 has no limit.
class Visit
  attr_reader :number, :inside

  def initialize(lock, lease, wait, **fields)
    @number = WRITING.synchronize { NUMBERS[0] += 1 }
    tell("asking", @number, lock: lock, lease: lease, wait: wait, **fields)
  end

  # Writes what the hold says of itself, and returns whether the lock is held.
  def holds?(event, hold, **fields)
    before = micros
    remaining = hold.remaining
    lost = hold.lost?
    tell(event, @number, [before, micros], remaining: remaining * 1000, lost: lost, **fields)
    remaining.positive? && !lost
  end

  # Runs the block while the lock is held.
  def enter(hold)
    @inside = true
    holds?("inside", hold, token: hold.token, **{ slot: hold.slot }.compact)
    yield
  ensure
    holds?("leaving", hold)
  end

  # Works for a while, with a look at the lock every 100 ms.
  def work(hold, seconds)
    ends = micros + (seconds * 1_000_000)
    while (left = ends - micros).positive?
      hold.wait_lost([left / 1_000_000.0, 0.1].min)
      raise Abandoned, "the lock is lost" unless holds?("still", hold)
    end
  end

  def error(error)
    tell("error", @number, type: error.is_a?(Abandoned) ? "abandoned" : error.class.name, message: error.message)
  end
end

# A web handler: pays an order, which other programs may be asked to pay at the same time.
def pay(locks)
  rest(rand(0.05..0.25))
  # The order is one of the last three: each half second has a new one.
  order = (unix / 500) - rand(3)
  visit = Visit.new("pay:#{order}", 3000, 1000)
  locks.lock("pay:#{order}", lease: 3, wait: 1, renew: false) do |hold|
    visit.enter(hold) { charge(visit, hold, File.join(LEDGER, order.to_s)) }
  end
  tell("left", visit.number)
rescue StandardError => e
  visit.error(e)
end

# Pays an order once. The file plays a database that refuses lower tokens: ../rules.py leaves such rows out.
def charge(visit, hold, order)
  File.open(order, "a+") do |rows|
    rows.sync = true
    rows.write("begin #{hold.token} #{NAME}\n")
    rows.rewind
    next if rows.read.include?("paid ")

    sleep(rand(0.02..0.15)) # The provider is called.
    rows.write("paid #{hold.token} #{NAME}\n") if visit.holds?("still", hold)
  end
end

# A worker of a pool: jobs of one customer run one at a time.
def serve(locks)
  customer = "customer:#{rand(4)}"
  visit = Visit.new(customer, 2000, 2000)
  locks.lock(customer, wait: 2) do |hold|
    visit.enter(hold) { visit.work(hold, Array.new(rand(1..6)) { rand(0.05..0.4) }.sum) }
  end
  tell("left", visit.number)
rescue StandardError => e
  visit.error(e)
end

# A candidate, which leads until its term ends or the input closes.
def stand(locks)
  visit = Visit.new("leader", 2000, -1)
  locks.lock("leader") do |hold|
    # A deployment interrupts only the wait: a leader sees it by `stopping?`.
    Thread.handle_interrupt(Deployed => :never) do
      visit.enter(hold) do
        ends = micros + rand(1_000_000..6_000_000)
        visit.work(hold, 0.1) until stopping? || micros > ends
      end
    end
  end
  tell("left", visit.number)
  rest(0.1)
rescue Deployed => e
  # The release may have failed while the interrupt left the block.
  failed = Dlock.release_error(e)
  failed ? visit.error(failed) : tell(visit.inside ? "left" : "canceled", visit.number)
rescue StandardError => e
  visit.error(e)
end

# A job for one of three GPUs, whose number nobody else has.
def compute(locks)
  visit = Visit.new("gpu", 2000, 2000, limit: 3)
  locks.slot("gpu", 3, wait: 2) do |hold|
    visit.enter(hold) { visit.work(hold, rand(0.1..1.5)) }
  end
  tell("left", visit.number)
rescue StandardError => e
  visit.error(e)
end

# A job that each machine's scheduler starts, once a period.
def report(locks)
  rest(((4000 - (unix % 4000)) / 1000.0) + rand(0.0..0.03))
  return if stopping?

  # The event's `lease` is how long the lock stays: nine tenths of the period.
  visit = Visit.new("report", 3600, 0)
  ran = locks.once("report", every: 4) do |hold|
    visit.enter(hold) { visit.work(hold, rand(0.1..0.5)) }
  end
  ran ? tell("left", visit.number, kept: true) : tell("refused", visit.number)
rescue StandardError => e
  visit.error(e)
end

# The client of the program, or a pool of clients, as web servers have.
def connect
  ports = ENV.fetch("ADOPTER_PORTS").split(",").map(&:to_i)
  at = { host: "127.0.0.1", port: ports.first }
  at = { host: "locks", sentinels: ports.map { |port| { host: "127.0.0.1", port: port } } } if ENV["ADOPTER_BY"] == "sentinel"
  return Redis.new(**at) unless ROLE == "web"

  require "connection_pool"
  ConnectionPool.new(size: 2) { Redis.new(**at) }
end

TASKS = { "web" => :pay, "pool" => :serve, "election" => :stand, "slots" => :compute, "cron" => :report }.freeze

$stdout.sync = true
locks = Dlock.new(connect, lease: 2, replicas: ENV.fetch("ADOPTER_REPLICAS").to_i)
threads = Array.new(%w[web pool].include?(ROLE) ? 2 : 1) do
  Thread.new do
    until stopping?
      send(TASKS[ROLE], locks)
      rest(0.05)
    end
  rescue Deployed
    # The deployment came between two acquisitions.
  end
end
$stdin.read
RESTING.synchronize { STOPPED.broadcast if STOPPING << true }
threads.each { |thread| thread.raise(Deployed) } if ROLE == "election"
threads.each(&:join)
locks.close
