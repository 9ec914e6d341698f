# frozen_string_literal: true

# Plays the table of URLs: a URL means what it says there, or is refused.

require_relative "../lib/dlock"

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
  expected = "refused" if %w[nodes sentinel].include?(kind) # which are not offered: a driver finds them
  url = url.gsub('\t', "\t").gsub('\n', "\n").gsub('\r', "\r")
  said = meaning(url)
  said == expected ? passed += 1 : failures << "#{line}: #{said}"
end
puts failures
puts "#{passed} passed, #{failures.size} failed"
exit failures.empty?
