module dlock.example/dlock/clients/go

go 1.23
