# frozen_string_literal: true

# Plays the table tests/clients/tables/urls.txt: each URL means what the table says, or is refused.

require_relative "../lib/dlock"

# Returns the meaning of a URL, as the table writes it.
def meaning(url)
  target = Dlock::Url.parse(url)
  host = target.host&.include?(":") ? "[#{target.host}]" : target.host
  [target.path || "#{host}:#{target.port}", target.tls && "tls", target.username && "user=#{target.username}",
   target.password && "password=#{target.password}", "db=#{target.db}"].compact.join(" ")
rescue ArgumentError
  "refused"
end

passed = 0
failures = []
File.foreach(File.join(__dir__, "../../../tests/clients/tables/urls.txt"), chomp: true) do |line|
  next if line.empty? || line.start_with?("#")

  kind, url, expected = line.match(/\A(\w+) "(.*)" => (.*)\z/).captures
  # The gem refuses a cluster, and reaches Sentinels through a client of redis-rb or redis-client only.
  expected = "refused" if %w[nodes sentinel].include?(kind)
  url = url.gsub('\t', "\t").gsub('\n', "\n").gsub('\r', "\r")
  said = meaning(url)
  said == expected ? passed += 1 : failures << "#{line}: #{said}"
end
# Malformed URLs with a password that begins with s3c: the errors do not contain it.
%w(redis://u:pa?s3cret@host redis://h?password=a&s3cret redis://u:pa?s3c=ret@h redis://u:[s3cret/x@h).each do |url|
  Dlock::Url.parse(url)
  failures << "#{url} is understood"
rescue ArgumentError => e
  e.full_message.include?("s3c") ? failures << "#{url}: #{e.message}" : passed += 1
end
puts failures
puts "#{passed} passed, #{failures.size} failed"
exit failures.empty?
