module machinist.dev/machinist/api

go 1.26.0
