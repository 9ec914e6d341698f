# frozen_string_literal: true

# The adapter of the conformance suite: see tests/conformance/README.md.

require "json"
require "redis"
require_relative "../lib/dlock"

# An Exception, as that of Timeout: no `rescue` of a StandardError catches it.
Canceled = Class.new(Exception) # rubocop:disable Lint/InheritException
# The entries of the locks, by the harness's names for them.
LOCKS = {}
# The client and the named session for each port.
SESSIONS = {}
# Guards the sessions, the threads of the entries, and the output.
MUTEX = Mutex.new
# A lock: the thread that acquires it, and the hold.
Entry = Struct.new(:thread, :hold)

def seconds(ms) = ms && ms / 1000.0

# Returns the client of a lock and its session. All `named` locks of a port share both. An ended session is replaced.
def client(request)
  at = { host: "127.0.0.1", port: request["port"] }
  at = { host: "locks", sentinels: [at] } if request["by"] == "sentinel"
  return [Dlock.new(Redis.new(at)), request["session"]] unless request["named"]

  MUTEX.synchronize do
    SESSIONS[request["port"]] = nil if SESSIONS[request["port"]]&.last&.lost?
    SESSIONS[request["port"]] ||= Dlock.new(Redis.new(at)).then { |dlock| [dlock, dlock.session] }
  end
end

def acquire(request, entry)
  dlock, session = client(request)
  options = { lease: seconds(request["lease"]), wait: seconds(request["wait"]), session: session,
              renew: request["keep"] || request["named"], replicas: request["replicas"], slots: request["slots"],
              mode: request["slots"] ? nil : request["mode"]&.to_sym, outage: seconds(request["outage"]) }
  options[:replicas_timeout] = seconds(request["replicas_timeout"]) if request["replicas"]&.positive?
  hold = entry.hold = dlock.lock(request["name"], **options.compact)
  { result: "granted", token: hold.token, slot: hold.slot }.compact
end

# Does what a request says, and returns the answer.
def task(request, entry)
  case request["do"]
  when "acquire" then acquire(request, entry)
  when "cancel"
    MUTEX.synchronize { entry.thread&.raise(Canceled) }
    { result: "ok" }
  when "release"
    entry.hold.release
    { result: "released" }
  when "extend"
    entry.hold.extend(seconds(request["lease"]))
    { result: "extended" }
  when "lost"
    { result: entry.hold.wait_lost ? "lost" : "error" }
  end
end

RESULTS = { Canceled => "canceled", Dlock::NotGranted => "refused", Dlock::TooFewReplicas => "too-few-replicas",
            Dlock::Lost => "lost", Dlock::ModuleMissing => "no-module" }.freeze

# Returns the result for an error. `failed`: a release or an extension without a server.
def result(request, error)
  RESULTS.fetch(error.class) do
    next "failed" if request["do"] != "acquire"

    error.is_a?(Dlock::Unreachable) ? "unreachable" : "error"
  end
end

# Answers a request. A cancellation interrupts only the task: outside it, the answer would be lost or written in pieces.
def serve(request, entry, begun)
  acquires = request["do"] == "acquire"
  Thread.handle_interrupt(Canceled => :never) do
    MUTEX.synchronize { entry.thread = Thread.current } if acquires
    begun << true
    answer =
      begin
        Thread.handle_interrupt(Canceled => :immediate) { task(request, entry) }
      rescue Exception => e # rubocop:disable Lint/RescueException
        { result: result(request, e), message: e.full_message(highlight: false) }
      end
    MUTEX.synchronize { entry.thread = nil } if acquires
    MUTEX.synchronize { puts JSON.generate(answer.merge(id: request["id"])) }
  end
rescue Canceled
  nil # The cancellation came too late: the answer is written.
end

$stdout.sync = true
puts JSON.generate(features: %w[cancel named outage slots sentinel])
$stdin.each_line do |line|
  request = JSON.parse(line)
  entry = request["do"] == "acquire" ? LOCKS[request["lock"]] = Entry.new : LOCKS[request["lock"]]
  begun = Thread::Queue.new
  Thread.new do
    Thread.current.report_on_exception = false
    serve(request, entry, begun)
  end
  # The next request may cancel this one, and needs its thread in the entry.
  begun.pop
end
