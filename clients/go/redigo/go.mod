module dlock.example/dlock/clients/go/redigo

go 1.23

require (
	dlock.example/dlock/clients/go v0.1.0
	github.com/gomodule/redigo v1.9.2
)

replace dlock.example/dlock/clients/go => ..
