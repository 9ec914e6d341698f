# frozen_string_literal: true

# The program of chaos with the gem (README.md): ruby -I clients/ruby/lib client.rb

require "json"
require "redis"
require "dlock"

Canceled = Class.new(Exception)
WRITING = Mutex.new
SHARED = Mutex.new
CLIENTS = {}
SESSIONS = {}
WORKERS = {}
Worker = Struct.new(:requests, :thread, :acquires, :hold)

def micros = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)

# The words of a hold about itself, between two times.
def claim(hold)
  before = micros
  remaining = hold.remaining
  lost = hold.lost?
  { at: [before, micros], remaining: remaining * 1000, lost: lost }
end

# The one client of a database.
def client(request)
  SHARED.synchronize do
    CLIENTS[request["db"]] ||= begin
      at = { host: "127.0.0.1", port: request["ports"].first }
      sentinels = request["ports"].map { |port| { host: "127.0.0.1", port: port } }
      at = { host: "locks", sentinels: sentinels } if request["by"] == "sentinel"
      Dlock.new(Redis.new(**at, db: request["db"]))
    end
  end
end

# The one session of a database, for requests that want a named session. A lost session is replaced.
def session(request)
  return false unless request["named"]

  locks = client(request)
  SHARED.synchronize do
    SESSIONS[request["db"]] = nil if SESSIONS[request["db"]]&.lost?
    SESSIONS[request["db"]] ||= locks.session(timeout: request["timeout"] / 1000.0)
  end
end

def acquire(worker, request)
  session = session(request)
  options = { lease: request["lease"] / 1000.0, renew: request["keep"] || request["named"], session: session,
              wait: request["wait"] / 1000.0, slots: request["slots"],
              mode: request["slots"] ? nil : request["mode"].to_sym, replicas: request["replicas"] }.compact
  hold = worker.hold = client(request).lock(request["name"], **options)
  { result: "granted", token: hold.token, slot: hold.slot }.compact.merge(claim(hold))
end

RESULTS = { Canceled => "canceled", Dlock::NotGranted => "refused", Dlock::TooFewReplicas => "too-few-replicas",
            Dlock::Lost => "lost" }.freeze

def failure(request, error)
  unreachable = request["do"] == "acquire" ? "unreachable" : "failed"
  { result: RESULTS.fetch(error.class) { error.is_a?(Dlock::Unreachable) ? unreachable : "error" }, message: error.inspect }
end

def answer(request, reply)
  WRITING.synchronize { puts JSON.generate({ id: request["id"] }.merge(reply)) }
end

def serve(worker, request)
  reply = { at: [micros, micros] }
  if request["do"] == "acquire"
    SHARED.synchronize { worker.acquires = true }
    reply = Thread.handle_interrupt(Canceled => :immediate) { acquire(worker, request) }
  else
    reply = { result: "held" }.merge(claim(worker.hold))
    reply = reply.merge(result: "released") if request["do"] == "release" && worker.hold.release.nil?
  end
rescue Exception => e
  reply = reply.merge(failure(request, e))
ensure
  SHARED.synchronize { worker.acquires = false }
  answer(request, reply)
end

def started
  worker = Worker.new(Thread::Queue.new)
  worker.thread = Thread.new do
    Thread.handle_interrupt(Canceled => :never) { loop { serve(worker, worker.requests.pop) } }
  end
  worker
end

$stdout.sync = true
puts JSON.generate(features: %w[named slots replicas cancel])
$stdin.each_line do |line|
  request = JSON.parse(line)
  worker = WORKERS[request["worker"]] ||= started
  if request["do"] == "cancel"
    SHARED.synchronize { worker.thread.raise(Canceled) if worker.acquires }
    answer(request, { result: "ok" })
  else
    worker.requests << request
  end
end
