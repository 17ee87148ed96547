package realnode

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// lockName is the file in a run's folder that is locked while the run lives.
const lockName = "lock"

// lockFolder locks the folder of this run, until the file that it returns is closed or this process ends.
func lockFolder(folder string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(folder, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// removeAbandoned removes the folder of a run that was killed before it could.
func removeAbandoned(folder string) error {
	if _, err := os.Stat(filepath.Join(folder, lockName)); errors.Is(err, fs.ErrNotExist) {
		return nil // a run that begins just now
	}
	lock, err := lockFolder(folder)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(removeFolder(folder), lock.Close())
}

// removeFolder removes what a run leaves when all its processes have ended.
func removeFolder(folder string) error {
	if err := removeCgroups(folder); err != nil {
		return err
	}
	return os.RemoveAll(folder)
}
