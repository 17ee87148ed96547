package main

import (
	"fmt"
	"regexp"

	"machinist.dev/machinist/test/simulation"
)

func corruptions(scenarios []simulation.Scenario, s settings, states int,
	enough func([]simulation.Failure) bool) (int, error) {
	only, err := regexp.Compile(s.only)
	if err != nil {
		return 0, fmt.Errorf("--only-fields is %q: %w", s.only, err)
	}
	sweep := simulation.Corruptions{Scenarios: scenarios, Budget: s.corruptions, States: states, Seed: s.seed,
		Workers: s.workers, FieldPattern: only, StopEarly: enough}
	sweep.Progress = func(done int) { fmt.Printf("corruptions: %d\n", done) }
	report, err := sweep.Run(simulation.Scheme())
	if err != nil {
		return 0, err
	}
	if s.fields {
		fmt.Print(report.Fields())
	}
	fmt.Print(report)
	return len(report.Failures), nil
}

// replayCorruption repeats one corruption. Flags select whether it prints the story of the run.
func replayCorruption(scenarios []simulation.Scenario, s settings) error {
	if len(scenarios) != 1 {
		return fmt.Errorf("--corrupt needs --scenario")
	}
	c, err := simulation.ParseCorruption(s.corrupt)
	if err != nil {
		return err
	}
	p, err := scenarios[0].Prepare(simulation.Scheme())
	if err != nil {
		return err
	}
	var story func(string)
	if s.story {
		story = func(line string) { fmt.Println(line) }
	}
	outcome, err := p.Corrupt(s.seed, c, story)
	fmt.Printf("%s: %s\n", c, outcome)
	if outcome == simulation.OutcomeViolated {
		fmt.Printf("FAILED scenario %s, %s\n", p.Name, simulation.Failure{Scenario: p.Name, Seed: s.seed, Corruption: &c,
			Err: err})
	}
	return err
}
