module dlock.example/dlock/clients/go/rueidis

go 1.23.0

require (
	dlock.example/dlock/clients/go v0.1.0
	github.com/redis/rueidis v1.0.60
)

require golang.org/x/sys v0.31.0 // indirect

replace dlock.example/dlock/clients/go => ..
