package realnode

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

const (
	stageVariable  = "MACHINIST_REALNODE_STAGE"
	folderVariable = "MACHINIST_REALNODE_FOLDER"
)

// The following stages are set in an environment variable. In the first stage, which `go test` starts, the variable is
// empty.
const (
	stageInit = "init" // the first process in the namespaces
	stageTest = "test" // the tests
)

const pidName = "pid"

const folderPrefix = "machinist-node-"

// Main calls m.Run in new namespaces and exits with its exit code.
func Main(m interface{ Run() int }) {
	var code int
	var err error
	switch os.Getenv(stageVariable) {
	case "":
		code, err = runInNamespaces()
	case stageInit:
		code, err = runInit()
	case stageTest:
		code = m.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "real node:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// runInNamespaces starts this binary again as the first process of new namespaces. When the process has ended,
// runInNamespaces removes what is left of the run.
func runInNamespaces() (int, error) {
	if os.Getuid() != 0 {
		return 0, errors.New("root is required to create network namespaces and containers")
	}
	leftovers, err := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	if err != nil {
		return 0, err
	}
	for _, folder := range leftovers {
		if err := removeAbandoned(folder); err != nil {
			return 0, fmt.Errorf("remove the remains of an earlier run: %w", err)
		}
	}
	folder, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		return 0, err
	}
	lock, err := lockFolder(folder)
	if err != nil {
		return 0, err
	}
	defer lock.Close()

	// With Pdeathsig, the kernel kills the child when the thread that started it ends. So the goroutine stays on this
	// thread until the child has ended.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child := exec.Command("/proc/self/exe", os.Args[1:]...)
	child.Args[0] = os.Args[0]
	child.Env = append(os.Environ(), stageVariable+"="+stageInit, folderVariable+"="+folder)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC |
			syscall.CLONE_NEWUTS,
		Pdeathsig: syscall.SIGKILL,
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	if err := child.Start(); err != nil {
		return 0, errors.Join(fmt.Errorf("create namespaces: %w", err), removeFolder(folder))
	}
	if err := os.WriteFile(filepath.Join(folder, pidName), []byte(strconv.Itoa(child.Process.Pid)), 0o600); err != nil {
		return 0, err
	}
	go func() {
		for s := range signals {
			_ = child.Process.Signal(s) // The child may have ended.
		}
	}()
	err = child.Wait()
	// The kernel has now killed all processes in the namespaces.
	removeErr := removeFolder(folder)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), removeErr
	}
	return 0, errors.Join(err, removeErr)
}

// runInit prepares the namespaces and runs the tests. As the init process of the namespaces, it adopts orphaned
// processes, such as the shims of containerd, and must wait for them.
func runInit() (int, error) {
	folder := os.Getenv(folderVariable)
	// The goroutine must stay in this thread, because the tests inherit the thread's namespaces.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := prepareMounts(folder); err != nil {
		return 0, fmt.Errorf("prepare mounts: %w", err)
	}
	if err := ownCgroups(folder); err != nil {
		return 0, fmt.Errorf("prepare cgroups: %w", err)
	}
	// PATH often lacks the folders of the network tools.
	if err := os.Setenv("PATH", os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin"); err != nil {
		return 0, err
	}
	if err := setUpNetwork("ip link set lo up"); err != nil {
		return 0, fmt.Errorf("prepare network: %w", err)
	}
	environment := []string{stageVariable + "=" + stageTest}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, stageVariable+"=") {
			environment = append(environment, entry)
		}
	}
	tests, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{
		Env:   environment,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return 0, fmt.Errorf("start the tests: %w", err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	go func() {
		for s := range signals {
			_ = tests.Signal(s) // The tests may have ended.
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for the tests: %w", err)
		case pid != tests.Pid:
		case status.Signaled():
			return 0, fmt.Errorf("the tests were killed by signal %q", status.Signal())
		default:
			return status.ExitStatus(), nil
		}
	}
}
