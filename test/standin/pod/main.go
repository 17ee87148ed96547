//go:build linux

// Command pod runs a controller of Cluster API in network and mount namespaces of its own, and restarts it when it
// ends, like a kubelet. The controller listens on fixed ports of all addresses, and reads its namespace from the
// file of a pod's service account. The command needs no root.
//
//	pod -dir DIR -namespace NS -connect 127.0.0.1:6443 -publish 127.0.0.1:20000=9443 -- PROGRAM ARGS...
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	inside         = "POD_INSIDE"
	serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"
	restartDelay   = time.Second
)

// pod relays connections between the namespaces through sockets in a folder, which both sides see.
type pod struct {
	dir, namespace string
	connect        []string // addresses outside that the program can reach at the same addresses inside
	publish        string   // address outside and port inside, such as 127.0.0.1:20000=9443
	program        []string
}

func main() {
	p := &pod{}
	flag.StringVar(&p.dir, "dir", "", "folder for sockets")
	flag.StringVar(&p.namespace, "namespace", "", "Kubernetes namespace of the pod")
	flag.StringVar(&p.publish, "publish", "", "address outside and port inside")
	flag.Func("connect", "address that the program connects to; may be repeated", func(address string) error {
		p.connect = append(p.connect, address)
		return nil
	})
	flag.Parse()
	p.program = flag.Args()
	run := p.outside
	if os.Getenv(inside) != "" {
		run = p.inside
	}
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func (p *pod) socket(name string) string { return filepath.Join(p.dir, name) }

// outside relays connections, and runs this program again in new namespaces.
func (p *pod) outside() error {
	for i, address := range p.connect {
		if err := relay("unix", p.socket(fmt.Sprint(i)), "tcp", address); err != nil {
			return err
		}
	}
	published, _, _ := strings.Cut(p.publish, "=")
	if err := relay("tcp", published, "unix", p.socket("published")); err != nil {
		return err
	}
	return runChild(&syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}, append(os.Environ(), inside+"=true"), "/proc/self/exe", os.Args[1:]...)
}

// inside prepares the namespaces, and runs the program again and again.
func (p *pod) inside() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("separate the mounts: %w", err)
	}
	if err := syscall.Mount("tmpfs", "/var/run", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /var/run: %w", err)
	}
	err := errors.Join(os.MkdirAll(serviceAccount, 0o700),
		os.WriteFile(filepath.Join(serviceAccount, "namespace"), []byte(p.namespace), 0o600), startLoopback())
	if err != nil {
		return err
	}
	for i, address := range p.connect {
		if err := relay("tcp", address, "unix", p.socket(fmt.Sprint(i))); err != nil {
			return err
		}
	}
	_, port, _ := strings.Cut(p.publish, "=")
	if err := relay("unix", p.socket("published"), "tcp", "127.0.0.1:"+port); err != nil {
		return err
	}
	for {
		err := runChild(&syscall.SysProcAttr{}, os.Environ(), p.program[0], p.program[1:]...)
		log.Printf("pod: the program has ended: %v", err)
		<-time.After(restartDelay)
	}
}

// runChild runs a program that ends together with this process.
func runChild(attributes *syscall.SysProcAttr, env []string, path string, args ...string) error {
	runtime.LockOSThread() // The kernel sends the signal when the thread that started the child ends.
	defer runtime.UnlockOSThread()
	attributes.Pdeathsig = syscall.SIGKILL
	cmd := exec.Command(path, args...)
	cmd.Env, cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = env, attributes, os.Stdout, os.Stderr
	return cmd.Run()
}

func startLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	request, err := unix.NewIfreq("lo")
	if err == nil {
		request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
	}
	return errors.Join(err, unix.Close(fd))
}

// relay connects each connection to one address with a new connection to another address.
func relay(network, address, toNetwork, toAddress string) error {
	if network == "unix" {
		if err := os.Remove(address); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				log.Fatal(err)
			}
			go func() {
				to, err := net.Dial(toNetwork, toAddress)
				if err != nil {
					_ = from.Close()
					return
				}
				go copyAndClose(to, from)
				copyAndClose(from, to)
			}()
		}
	}()
	return nil
}

func copyAndClose(to, from net.Conn) {
	_, _ = io.Copy(to, from) // The other side notices the end of the connection.
	_ = to.Close()
	_ = from.Close()
}
