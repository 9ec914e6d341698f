# frozen_string_literal: true

# Plays the histories of tests/clients/histories against the parts that decide. No server, no clock, no socket. The
# README.md of that folder says what the words of a line mean.

require_relative "../lib/dlock/validity"
require_relative "../lib/dlock/heartbeat"
require_relative "../lib/dlock/limits"
require_relative "../lib/dlock/attempt"

def setting(words, name) = words.filter_map { |word| word[/\A#{name}=(.*)/, 1] }.first

# A hold with its heartbeat. A history names its commands; `@numbers` has the number that the hold gave to each.
class Keeping
  def handle(now, kind, *words)
    @validity&.passes(now)
    number = @numbers&.[](words.first)
    case kind
    when "granted" then begin_with(now, words)
    when "sent" then sends(now, words)
    when "asked" then @numbers[words.first] = @validity.asks(now)
    when "ok" then (sent = @validity.ok(number)) && @heart.ok(@validity, now, sent)
    when "cut", "refused" then fail_with(kind, number, now)
    when "capped" then @validity.refused(number) && @heart.capped(now)
    when "left" then @validity.left(number, words[1].to_i) && @heart.checked(@validity)
    when "nil" then @validity.gone
    when "release" then @validity.release
    end
    @validity.passes(now)
  end

  # Says how the hold has ended. While it lasts, says until when it is certain if that is expected, and else what the
  # heartbeat does next.
  def say(_now, expected)
    return @validity.state.to_s unless @validity.state == :held
    return "until #{@validity.until}" if expected.start_with?("until")

    @heart.what == :check ? "check" : "#{@heart.what} #{@heart.at}"
  end

  private

  def begin_with(now, words)
    sent = setting(words, "sent").to_i
    @numbers = {}
    @validity = Dlock::Validity.new(now, sent, setting(words, "lease").to_i, open: words.include?("open"))
    @heart = Dlock::Heartbeat.new
    @heart.ok(@validity, now, sent)
  end

  def sends(now, words)
    @numbers[words.first] = @validity.sends(now, setting(words, "lease").to_i)
    @heart.sends(@validity, now)
  end

  def fail_with(kind, number, now)
    kind == "cut" ? @validity.cut(number) : @validity.refused(number)
    @heart.failed(@validity, now)
  end
end

# An acquisition.
class Attempting
  def handle(now, kind, *words)
    return acquire(now, words) if kind == "acquire"
    return sends(now, words.first) if kind == "sent"

    number = @numbers[words.first]
    @turn =
      case kind
      when "granted" then @attempt.granted(now, number)
      when "nil" then @attempt.nil(now, number, @waited[words.first])
      when "ok" then @attempt.ok(now, number)
      when "left" then @attempt.ok(now, number, words[1].to_i)
      when "gone" then @attempt.gone(now)
      when "cut" then @attempt.cut(now)
      when "refused" then @attempt.refused(now, number)
      when "error" then @attempt.failed(number)
      when "over" then @attempt.over(now)
      when "cancel" then @attempt.canceled
      end
  end

  def say(now, _expected)
    text = @turn.fresh ? "fresh #{@turn.action}" : @turn.action.to_s
    case @turn.action
    when :wait then "#{text} #{@attempt.limits.block(now)}"
    when :granted then "granted until #{@turn.at}"
    when :try, :confirm then text
    else "#{text} cleanup #{@turn.cleanup}"
    end
  end

  private

  def acquire(now, words)
    limit = setting(words, "limit")
    wait = { "none" => nil, "try" => 0 }.fetch(limit) { limit.to_i }
    limits = Dlock::Limits.new(now, wait, (setting(words, "outage") || 30_000).to_i)
    @attempt = Dlock::Attempt.new(now, limits, setting(words, "lease").to_i)
    @numbers = {}
    @waited = {}
    @turn = @attempt.again
  end

  def sends(now, name)
    if @turn.action == :confirm
      @numbers[name] = @attempt.renews(now)
    else
      @numbers[name] = @attempt.sends(now)
      @waited[name] = @turn.action == :wait
    end
  end
end

# Returns how many histories a file has, after it has played them.
def play(file, failures)
  playing = name = nil
  histories = 0
  File.foreach(file, chomp: true).with_index(1) do |line, number|
    next if line.empty? || line.start_with?("#")

    if line.delete_prefix!("history ")
      name = line
      playing = nil
      histories += 1
      next
    end
    happens, expected = line.split(":", 2)
    time, *event = happens.split
    playing ||= event.first == "granted" ? Keeping.new : Attempting.new
    playing.handle(time.to_i, *event)
    (expected || "").split(",").map { |each| each.split.join(" ") }.each do |each|
      said = playing.say(time.to_i, each)
      failures << "#{File.basename(file)}:#{number}: #{name}: #{each} is #{said}" if said != each
    end
  end
  histories
end

failures = []
files = Dir[File.join(__dir__, "../../../tests/clients/histories/*.txt")]
played = files.sum { |file| play(file, failures) }
puts failures.first(20)
puts "#{played} histories played, #{failures.size} expectations failed"
exit played > 1000 && failures.empty?
