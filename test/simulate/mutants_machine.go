package main

// machineMutants are planted bugs that concern how one machine is brought up and taken down.
func machineMutants() []mutant {
	return []mutant{
		{
			name: "refused-delete-repeated-by-events", file: "internal/machine/pace.go",
			from: "	if never || left == 0 {", to: "	if last != (pace{}) {",
			scenario: "deletes-refused", finds: "pace: ",
		},
	}
}
