# frozen_string_literal: true

# Plays the table of replies: an error of a server means what the table says.

require_relative "../lib/dlock"

def meaning(error)
  return error.open? ? "open" : "elsewhere" if error.elsewhere?
  return "paused" if error.paused?

  case error.explained("job")
  when Dlock::Deadlock then "deadlock"
  when Dlock::ModuleMissing then "module"
  else { "WRONGTYPE" => "foreign", "NOSESSION" => "session" }.fetch(error.code, "final")
  end
end

passed = 0
failures = []
File.foreach(File.join(__dir__, "../../../tests/clients/tables/replies.txt"), chomp: true) do |line|
  next if line.empty? || line.start_with?("#")

  reply, expected = line.match(/\A"(.*)" => (.*)\z/).captures
  said = meaning(Dlock::ServerError.new(reply))
  said == expected ? passed += 1 : failures << "#{line}: #{said}"
end
puts failures
puts "#{passed} passed, #{failures.size} failed"
exit failures.empty? && passed > 20
