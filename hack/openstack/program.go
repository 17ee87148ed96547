package openstack

import (
	"fmt"
	"path/filepath"
	"strconv"

	"machinist.dev/machinist/devel/child"
)

// python is the interpreter for which Debian builds the packages of OpenStack. The python3 in PATH may have another
// version.
const python = "/usr/bin/python3"

// environment returns the environment of all processes. Variables of the caller must not affect them.
func (s settings) environment(more ...string) []string {
	return append([]string{
		"PATH=" + s.Root + "/usr/sbin:" + s.Root + "/usr/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + filepath.Join(s.Dir, "home"),
		"LANG=C.UTF-8",
		"LD_LIBRARY_PATH=" + filepath.Join(s.Root, "usr/lib/x86_64-linux-gnu"),
		"PYTHONPATH=" + filepath.Join(s.Root, "usr/lib/python3/dist-packages"),
		"PYTHONUNBUFFERED=1",
		"PYTHONWARNINGS=ignore",
		// All addresses are 127.0.0.1, so no name resolution is needed.
		"EVENTLET_NO_GREENDNS=yes",
		"OS_KEYSTONE_CONFIG_FILES=" + s.configPath("keystone.conf"),
		"OS_PLACEMENT_CONFIG_DIR=" + s.configPath(""),
	}, more...)
}

func (s settings) launch(name, program string, args ...string) *child.Process {
	return &child.Process{
		Name: name, Path: python, Dir: s.Dir, Group: true, Env: s.environment(),
		Args: append([]string{filepath.Join(s.Dir, "python", "launch.py"), program}, args...),
	}
}

// processes returns the processes of a service in start order.
func (s settings) processes(service Service) []*child.Process {
	config := func(name string) string { return "--config-file=" + s.configPath(name) }
	novaDatabase := []string{config("nova.conf"), config("nova-database.conf")}
	switch service {
	case MariaDB:
		return []*child.Process{s.mariaDB()}
	case RabbitMQ:
		return []*child.Process{s.portMapper(), s.rabbitMQ()}
	case Keystone:
		return []*child.Process{s.launch("keystone", "keystone", strconv.Itoa(s.Port.Keystone))}
	case Placement:
		return []*child.Process{s.launch("placement", "placement", strconv.Itoa(s.Port.Placement))}
	case Glance:
		return []*child.Process{s.launch("glance", "glance-api", config("glance.conf"))}
	case Neutron:
		return []*child.Process{s.launch("neutron", "neutron-server", config("neutron.conf"))}
	case NovaMetadata:
		return []*child.Process{s.launch("nova-metadata", "nova-api-metadata", novaDatabase...)}
	case CinderAPI, CinderScheduler, CinderVolume:
		return []*child.Process{s.launch(string(service), string(service), config("cinder.conf"))}
	case NovaCompute1, NovaCompute2, NovaCompute3:
		own := config(string(service) + ".conf")
		return []*child.Process{s.launch(string(service), "nova-compute", config("nova.conf"), own)}
	default:
		return []*child.Process{s.launch(string(service), string(service), novaDatabase...)}
	}
}

func (s settings) mariaDB() *child.Process {
	return &child.Process{
		Name: "mariadb", Path: filepath.Join(s.Root, "usr/sbin/mariadbd"), Dir: s.Dir, Env: s.environment(),
		Args: append(s.mariaDBArgs(),
			// This path is relative to the data folder.
			"--socket="+filepath.Base(mariaDBSocket),
			"--pid-file=mariadb.pid",
			"--skip-networking",
			"--init-file="+filepath.Join(s.Dir, "config", "mariadb.sql"),
			"--max-connections=1000",
			// The data must survive the end of the process, but not a crash of the machine.
			"--innodb-flush-log-at-trx-commit=2",
			"--innodb-flush-method=nosync",
			"--innodb-buffer-pool-size=128M",
			"--innodb-log-file-size=32M",
			"--skip-log-bin",
			"--performance-schema=OFF",
		),
	}
}

// mariaDBArgs returns the common arguments of the server and the program that creates its data folder.
func (s settings) mariaDBArgs() []string {
	return []string{
		"--no-defaults",
		"--basedir=" + filepath.Join(s.Root, "usr"),
		"--datadir=" + filepath.Join(s.Dir, "mariadb"),
		"--user=root",
		// One file for all tables is smaller and is created faster than hundreds of small files.
		"--innodb-file-per-table=OFF",
		"--character-set-server=utf8mb3",
	}
}

// portMapper returns Erlang's port mapper on its own port. Otherwise, RabbitMQ would start a port mapper that listens
// on all addresses and continues to run after RabbitMQ has ended.
func (s settings) portMapper() *child.Process {
	return &child.Process{
		Name: "epmd", Path: s.erlang("epmd"), Dir: s.Dir, Env: s.environment(),
		Args: []string{"-address", "127.0.0.1", "-port", strconv.Itoa(s.Port.PortMapper)},
	}
}

func (s settings) erlang(program string) string {
	found, err := filepath.Glob(filepath.Join(s.Root, "usr/lib/erlang/erts-*/bin", program))
	if err != nil || len(found) == 0 {
		return program
	}
	return found[0]
}

// rabbitMQ runs without its shell scripts: they look for programs in /usr, and leave RabbitMQ running when they are
// killed.
func (s settings) rabbitMQ() *child.Process {
	home := filepath.Join(s.Root, "usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8")
	if found, _ := filepath.Glob(filepath.Join(s.Root, "usr/lib/rabbitmq/lib/rabbitmq_server-*")); len(found) > 0 {
		home = found[0]
	}
	rabbit := filepath.Join(home, "plugins")
	if found, _ := filepath.Glob(filepath.Join(rabbit, "rabbit-*")); len(found) > 0 {
		rabbit = filepath.Join(found[0], "ebin")
	}
	dir := filepath.Join(s.Dir, "rabbitmq")
	return &child.Process{
		Name: "rabbitmq", Path: s.erlang("erlexec"), Dir: s.Dir, Group: true,
		Args: []string{
			"-pa", rabbit, "-noinput", "-s", "rabbit", "boot", "-boot", "start_sasl",
			"+W", "w", "+P", "100000", "+t", "1000000", "+zdbbl", "32000",
			// Waiting must not take processor time.
			"+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none", "+S", "2:2",
			"-start_epmd", "false",
			"-kernel", "inet_dist_use_interface", "{127,0,0,1}",
			"-kernel", "prevent_overlapping_partitions", "false",
			"-syslog", "logger", "[]", "-syslog", "syslog_error_logger", "false",
		},
		Env: s.environment(
			"HOME="+dir,
			"ROOTDIR="+filepath.Join(s.Root, "usr/lib/erlang"),
			"BINDIR="+filepath.Dir(s.erlang("erlexec")),
			"EMU=beam", "PROGNAME=erl",
			"ERL_LIBS="+filepath.Join(home, "plugins"),
			"ERL_EPMD_ADDRESS=127.0.0.1",
			fmt.Sprintf("ERL_EPMD_PORT=%d", s.Port.PortMapper),
			"ERL_MAX_ETS_TABLES=50000", "ERL_MAX_PORTS=65536", "ERL_CRASH_DUMP_SECONDS=0",
			"RABBITMQ_HOME="+home,
			"RABBITMQ_NODENAME=rabbit@localhost",
			"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
			fmt.Sprintf("RABBITMQ_NODE_PORT=%d", s.Port.RabbitMQ),
			fmt.Sprintf("RABBITMQ_DIST_PORT=%d", s.Port.Erlang),
			"RABBITMQ_BASE="+dir,
			"RABBITMQ_MNESIA_BASE="+filepath.Join(dir, "mnesia"),
			"RABBITMQ_LOG_BASE="+filepath.Join(dir, "log"),
			"RABBITMQ_LOGS=-",
			"RABBITMQ_CONFIG_FILE="+filepath.Join(dir, "rabbitmq"),
			"RABBITMQ_ADVANCED_CONFIG_FILE="+filepath.Join(dir, "advanced"),
			"RABBITMQ_CONF_ENV_FILE="+filepath.Join(dir, "environment"),
			"RABBITMQ_GENERATED_CONFIG_DIR="+filepath.Join(dir, "generated"),
			"RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(dir, "plugins"),
			"RABBITMQ_PLUGINS_DIR="+filepath.Join(home, "plugins"),
			"RABBITMQ_PID_FILE="+filepath.Join(dir, "pid"),
			"SYS_PREFIX=",
		),
	}
}
