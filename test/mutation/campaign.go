package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// campaign judges a random choice of the mutants of some packages.
type campaign struct {
	patterns []string
	seed     uint64
	count    int
	workers  int
	// results is a file with one judgement per line. A mutant that it judges is not judged again, unless its package or,
	// if it survived, the tests have changed.
	results string
	// deadline is the end of this batch. The next batch continues with the remaining mutants.
	deadline time.Time
	// simulation is the path of the program that searches for mutants which survive the unit tests. Each search takes
	// at most the time simulationTime. If simulation is empty, there is no search.
	simulation     string
	simulationTime time.Duration
	out            io.Writer

	dir, overlay string
	packages     []*sourcePackage
	all          map[string][]mutant
	programs     map[string]*program
	judged       map[string]judgement
	mu           sync.Mutex
	cpu          atomic.Int64
}

// judgement is the result of one mutant.
type judgement struct {
	mutant
	// Sources and Tests are hashes of the files of the package and of its tests.
	Sources string `json:"sources"`
	Tests   string `json:"tests"`
	// FoundBy is "tests", "simulation" or "". How is the failed test or the violation.
	FoundBy string `json:"foundBy,omitempty"`
	How     string `json:"how,omitempty"`
	// Simulated is true if the simulation has searched for the mutant.
	Simulated bool `json:"simulated,omitempty"`
}

func (j judgement) isFinal(c *campaign) bool {
	return j.FoundBy != "" || j.Simulated || c.simulation == ""
}

// program is a binary that contains all mutants.
type program struct {
	path, dir string
	arguments []string
	took      time.Duration
	reached   map[string]bool
}

// run judges the chosen mutants and returns their judgements, without those that the deadline prevented.
func (c *campaign) run(ctx context.Context) ([]judgement, error) {
	var err error
	if c.dir, err = os.MkdirTemp("", "machinist-mutants-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(c.dir)
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	chosen := c.choose()
	if err := c.each(ctx, chosen, c.askTests); err != nil {
		return nil, err
	}
	if c.simulation != "" {
		survivors := slices.DeleteFunc(slices.Clone(chosen), func(m mutant) bool {
			j, judged := c.judgementOf(m)
			return !judged || j.isFinal(c)
		})
		if err := c.each(ctx, survivors, c.askSimulation); err != nil {
			return nil, err
		}
	}
	var out []judgement
	for _, m := range chosen {
		if j, judged := c.judgementOf(m); judged && j.isFinal(c) {
			out = append(out, j)
		}
	}
	return out, nil
}

// prepare generates the mutants and reads the earlier results.
func (c *campaign) prepare(ctx context.Context) error {
	c.packages, c.all, c.programs, c.judged = nil, map[string][]mutant{}, map[string]*program{}, map[string]judgement{}
	packages, importer, err := loadPackages(ctx, c.patterns)
	if err != nil {
		return err
	}
	replace := map[string]string{}
	for _, p := range packages {
		mutants, sources, err := generate(p, importer)
		if err != nil {
			return err
		}
		c.packages = append(c.packages, p)
		if len(mutants) == 0 {
			continue
		}
		c.all[p.path()] = mutants
		for path, text := range sources {
			replace[path] = filepath.Join(c.dir, fmt.Sprintf("%d.go", len(replace)))
			if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
				return err
			}
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	c.overlay = filepath.Join(c.dir, "overlay.json")
	if err := os.WriteFile(c.overlay, overlay, 0o600); err != nil {
		return err
	}
	file, err := os.Open(c.results)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer file.Close()
	for lines := json.NewDecoder(file); ; {
		var j judgement
		if err := lines.Decode(&j); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read %s: %w", c.results, err)
		}
		c.judged[j.key()] = j
	}
}

// choose returns the mutants of this seed. Half of them are divided equally among the packages, and the other half
// according to the number of mutants.
func (c *campaign) choose() (chosen []mutant) {
	total := 0
	for _, all := range c.all {
		total += len(all)
	}
	for _, p := range c.packages {
		ranked := slices.Clone(c.all[p.path()])
		slices.SortFunc(ranked, func(a, b mutant) int { return cmp.Compare(a.rank(c.seed), b.rank(c.seed)) })
		n := (c.count/2+len(c.all)-1)/len(c.all) + c.count/2*len(ranked)/max(total, 1)
		chosen = append(chosen, ranked[:min(n, len(ranked))]...)
	}
	return chosen
}

// each calls ask for the mutants that are not judged, in parallel, until the deadline.
func (c *campaign) each(ctx context.Context, mutants []mutant, ask func(context.Context, mutant) error) error {
	queue, failed := make(chan mutant), make(chan error, c.workers)
	var workers sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range c.workers {
		workers.Go(func() {
			for m := range queue {
				if err := ask(ctx, m); err != nil {
					failed <- fmt.Errorf("%s: %w", m, err)
					cancel()
					return
				}
			}
		})
	}
	for _, m := range mutants {
		if time.Now().After(c.deadline) || ctx.Err() != nil {
			break
		}
		select {
		case queue <- m:
		case <-ctx.Done():
		}
	}
	close(queue)
	workers.Wait()
	close(failed)
	if err := <-failed; err != nil {
		return err
	}
	return ctx.Err()
}

// judgementOf returns the earlier judgement of a mutant if it is still valid.
func (c *campaign) judgementOf(m mutant) (judgement, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j, judged := c.judged[m.key()]
	j.mutant = m
	return j, judged && j.Sources == c.packageOf(m).sourcesHash && (j.FoundBy != "" || j.Tests == c.hashOfTests(m))
}

func (c *campaign) packageOf(m mutant) *sourcePackage {
	return c.packages[slices.IndexFunc(c.packages, func(p *sourcePackage) bool { return p.path() == m.Package })]
}

// testedIn returns the packages whose tests may find a mutant: first its own package and the folders below, and then
// other packages.
func (c *campaign) testedIn(m mutant) (out []*sourcePackage) {
	own := c.packageOf(m)
	for _, p := range c.packages {
		if p.tests(own) {
			out = append(out, p)
		}
	}
	distance := func(p *sourcePackage) int {
		switch {
		case p == own:
			return 0
		case strings.HasPrefix(p.ImportPath, own.ImportPath+"/"):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(out, func(a, b *sourcePackage) int { return cmp.Compare(distance(a), distance(b)) })
	return out
}

func (c *campaign) hashOfTests(m mutant) string {
	var all []string
	for _, p := range c.testedIn(m) {
		all = append(all, p.testsHash)
	}
	return strings.Join(all, "+")
}

func (c *campaign) record(m mutant, j judgement) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	j.mutant, j.Sources, j.Tests = m, c.packageOf(m).sourcesHash, c.hashOfTests(m)
	c.judged[m.key()] = j
	by := j.FoundBy
	if by == "" {
		by = "not found"
	}
	fmt.Fprintf(c.out, "%-10s %s (%s)\n", by, m, j.How)
	line, err := json.Marshal(j)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.results), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(c.results, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

func (c *campaign) askTests(ctx context.Context, m mutant) error {
	if _, judged := c.judgementOf(m); judged {
		return nil
	}
	var j judgement
	j.How = "not reached by tests"
	for _, p := range c.testedIn(m) {
		tests, err := c.program(ctx, p.ImportPath, p.Dir, "test")
		if err != nil {
			return err
		}
		if !tests.reached[m.id()] {
			continue
		}
		j.How = "reached by tests"
		// Other processes may slow down the tests of the mutant, but not the measured run, or the other way round.
		limit := 5*tests.took + 30*time.Second
		out, end := c.execute(ctx, tests, limit, "MACHINIST_MUTANT="+m.id())
		if ctx.Err() != nil {
			return ctx.Err() // The program was killed, which says nothing about the mutant.
		}
		if end != succeeded {
			j.FoundBy, j.How = "tests", firstMatch(failedTest, out, "crashed or exceeded "+limit.Round(time.Second).String())
			break
		}
	}
	return c.record(m, j)
}

func (c *campaign) askSimulation(ctx context.Context, m mutant) error {
	j, _ := c.judgementOf(m)
	// The unmutated simulation proves that this choice of runs has no violations.
	simulation, err := c.program(ctx, c.simulation, ".", "build", "--seed", fmt.Sprint(c.seed), "--cloud", "none",
		"--plans", "300", "--runs", "15", "--corruptions", "0", "--until", ".")
	if err != nil {
		return err
	}
	j.Simulated = true
	if simulation.reached[m.id()] {
		out, end := c.execute(ctx, simulation, c.simulationTime, "MACHINIST_MUTANT="+m.id())
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if end == crashed || violation.MatchString(out) {
			j.FoundBy, j.How = "simulation", firstMatch(violation, out, "crashed")
		} else {
			j.How += ", reached by the simulation"
		}
	}
	return c.record(m, j)
}

var (
	failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^panic: (.*)`)
	violation  = regexp.MustCompile(`(?m)^FAILED (.*)`)
)

func firstMatch(pattern *regexp.Regexp, out, otherwise string) string {
	found := pattern.FindStringSubmatch(out)
	if found == nil {
		return otherwise
	}
	return shorten(strings.Join(found[1:], ""))
}

// program builds a test binary (verb "test") or a program (verb "build") with all mutants, and runs it once with all
// mutants off. This run must succeed.
func (c *campaign) program(ctx context.Context, importPath, dir, verb string, arguments ...string) (*program, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.programs[importPath]; p != nil {
		return p, nil
	}
	p := &program{path: filepath.Join(c.dir, fmt.Sprintf("program-%d", len(c.programs))), dir: dir, arguments: arguments,
		reached: map[string]bool{}}
	flags := []string{verb}
	if verb == "test" {
		flags, p.arguments = []string{verb, "-c"}, []string{"-test.failfast"}
	}
	flags = append(flags, "-ldflags=-s -w", "-overlay", c.overlay, "-o", p.path, importPath)
	build := exec.CommandContext(ctx, "go", flags...)
	out, err := build.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("build %s with mutants: %w: %s", importPath, err, out)
	}
	c.addTime(build)
	began, reached := time.Now(), filepath.Join(c.dir, "reached")
	defer os.Remove(reached)
	text, end := c.execute(ctx, p, time.Hour, "MACHINIST_MUTANTS_REACHED="+reached)
	if end != succeeded {
		return nil, fmt.Errorf("%s fails without mutants: %s", importPath, text)
	}
	p.took = time.Since(began)
	file, err := os.Open(reached)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		p.reached[lines.Text()] = true
	}
	c.programs[importPath] = p
	return p, nil
}

type ending int

const (
	succeeded ending = iota
	crashed
	timedOut
)

// maxMemory is the limit of the address space of a process in KiB. A mutant may allocate memory in an endless loop.
const maxMemory = 16 << 20

func (c *campaign) execute(ctx context.Context, p *program, limit time.Duration, variable string) (string, ending) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	shell := fmt.Sprintf(`ulimit -v %d && exec "$0" "$@"`, maxMemory)
	command := exec.CommandContext(limited, "sh", append([]string{"-c", shell, p.path}, p.arguments...)...)
	command.Dir, command.Env, command.WaitDelay = p.dir, append(os.Environ(), variable), time.Second
	out, err := command.CombinedOutput()
	c.addTime(command)
	switch {
	case limited.Err() != nil:
		return string(out), timedOut
	case err != nil:
		return string(out), crashed
	}
	return string(out), succeeded
}

func (c *campaign) addTime(command *exec.Cmd) {
	if command.ProcessState != nil {
		c.cpu.Add(int64(command.ProcessState.UserTime() + command.ProcessState.SystemTime()))
	}
}
