// Package runtimedir finds the folder of a user for files that are needed only as long as a program runs.
package runtimedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Folder returns the folder, and creates it if it does not exist. It is machinist in $XDG_RUNTIME_DIR, or if that is not
// a folder of this user, machinist-UID in the folder for temporary files, where every user may create files. Therefore
// Folder returns an error if the folder belongs to another user or others may read or change it.
func Folder() (string, error) {
	return folder(os.Getenv("XDG_RUNTIME_DIR"), os.TempDir())
}

func folder(runtime, temporary string) (string, error) {
	path := filepath.Join(temporary, fmt.Sprintf("machinist-%d", os.Getuid()))
	if filepath.IsAbs(runtime) && private(runtime) == nil {
		path = filepath.Join(runtime, "machinist")
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("create the folder for files of running programs: %w", err)
	}
	if err := private(path); err != nil {
		return "", fmt.Errorf("the folder for files of running programs cannot be used: %w", err)
	}
	return path, nil
}

// private returns an error unless a path is a folder, not a link to one, that only this user may use.
func private(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder: remove it", path)
	case !owned(info):
		return fmt.Errorf("%s belongs to another user", path)
	case info.Mode().Perm()&0o077 != 0 && hasModes:
		return fmt.Errorf("%s has mode %v, with which other users may use it: set mode 0700", path, info.Mode().Perm())
	}
	return nil
}
