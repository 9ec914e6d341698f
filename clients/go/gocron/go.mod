module dlock.example/dlock/clients/go/gocron

go 1.23

require (
	dlock.example/dlock/clients/go v0.1.0
	github.com/go-co-op/gocron/v2 v2.16.0
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/jonboulle/clockwork v0.5.0 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
)

replace dlock.example/dlock/clients/go => ..
