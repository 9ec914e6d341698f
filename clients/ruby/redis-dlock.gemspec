# frozen_string_literal: true

Gem::Specification.new do |spec|
  spec.name = "redis-dlock"
  spec.version = "0.1.0"
  spec.summary = "Locks of the dlock module of Redis and Valkey: a queue in the server, fencing tokens, sessions"
  spec.authors = ["The dlock developers"]
  spec.homepage = "https://dlock.example/dlock"
  spec.licenses = %w[MIT Apache-2.0]
  spec.required_ruby_version = ">= 3.1"
  spec.files = Dir["lib/**/*.rb", "README.md", "LICENSE-*"]
end
