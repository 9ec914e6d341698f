module dlock.example/dlock/clients/go/cron

go 1.23

require (
	dlock.example/dlock/clients/go v0.1.0
	github.com/robfig/cron/v3 v3.0.1
)

replace dlock.example/dlock/clients/go => ..
