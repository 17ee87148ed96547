package realnode

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// lockName is a file in the folder of a run. The file is locked during the run.
const lockName = "lock"

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

func removeAbandoned(folder string) error {
	if _, err := os.Stat(filepath.Join(folder, lockName)); errors.Is(err, fs.ErrNotExist) {
		return nil // The run is just starting.
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

// removeFolder removes the cgroups and the folder of a run. All processes of the run must have ended.
func removeFolder(folder string) error {
	if err := removeCgroups(folder); err != nil {
		return err
	}
	return os.RemoveAll(folder)
}
