/* Loaded before libc: keeps what processes have synced below a directory, as a disk must that loses its power.
 *
 *     POWER_LOSS_ROOT   the directory
 *     POWER_LOSS_DISK   what is kept, a file for each inode, named by its number and birth, as numbers are used again:
 *                       the content that a file had at its last sync, or the names and inodes in a directory
 *     POWER_LOSS_DISK/left   syncs until the power goes; then each process that syncs is killed before
 *
 * What is written through O_SYNC, sync() or syncfs() counts as lost: nothing here does that.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void check(int is_right, const char *what) {
    if (!is_right) {
        perror(what);
        abort();
    }
}

/* The identity of a file; "" if there is none. */
void power_loss_identity(int at, const char *name, char *identity) {
    struct statx found;
    int flags = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW;
    *identity = 0;
    if (statx(at, name, flags, STATX_INO | STATX_BTIME, &found))
        return;
    sprintf(identity, "%llx-%llx.%x", found.stx_ino, (long long)found.stx_btime.tv_sec, found.stx_btime.tv_nsec);
}

static void keep_directory(int fd, int kept) {
    DIR *directory = fdopendir(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct dirent *entry;
    check(directory != NULL, "fdopendir");
    while ((entry = readdir(directory))) {
        char identity[64];
        power_loss_identity(dirfd(directory), entry->d_name, identity);
        if (*identity && strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            dprintf(kept, "%s %s\n", identity, entry->d_name);
    }
    closedir(directory);
}

static void keep_file(int fd, int kept) {
    static __thread char block[1 << 16];
    /* Not opened once more if it can be read: to close that would lift the locks that SQLite has on the file. */
    int from = fd, writes_only = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY;
    off_t at = 0;
    ssize_t count;
    if (writes_only) {
        char link[64];
        sprintf(link, "/proc/self/fd/%d", fd);
        from = open(link, O_RDONLY | O_CLOEXEC);
    }
    while ((count = pread(from, block, sizeof block, at)) > 0) {
        check(write(kept, block, count) == count, "write");
        at += count;
    }
    check(count == 0, "pread");
    if (writes_only)
        close(from);
}

void power_loss_keep(int fd, const char *disk) {
    char identity[64], path[PATH_MAX];
    struct stat status;
    int kept;
    power_loss_identity(fd, "", identity);
    snprintf(path, sizeof path, "%s/%s", disk, identity);
    kept = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    check(kept >= 0 && !fstat(fd, &status), path);
    (S_ISDIR(status.st_mode) ? keep_directory : keep_file)(fd, kept);
    close(kept);
}

static int synced(int fd, long call) {
    const char *root = getenv("POWER_LOSS_ROOT"), *disk = getenv("POWER_LOSS_DISK");
    char link[64], path[PATH_MAX], digits[32] = "";
    sprintf(link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    size_t of_root = root ? strlen(root) : 0;
    if (!root || length < (ssize_t)of_root || strncmp(path, root, of_root))
        return syscall(call, fd);
    snprintf(path, sizeof path, "%s/left", disk);
    int left = open(path, O_RDWR | O_CLOEXEC);
    check(left >= 0 && !flock(left, LOCK_EX), path);
    check(pread(left, digits, sizeof digits - 1, 0) > 0, path);
    if (atol(digits) == 0)
        kill(getpid(), SIGKILL);
    check(dprintf(left, "%-20ld", atol(digits) - 1) > 0, path);
    power_loss_keep(fd, disk);
    close(left);
    return 0;
}

int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }
