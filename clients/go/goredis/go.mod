module dlock.example/dlock/clients/go/goredis

go 1.23

require (
	dlock.example/dlock/clients/go v0.1.0
	github.com/redis/go-redis/v9 v9.17.2
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
)

replace dlock.example/dlock/clients/go => ..
