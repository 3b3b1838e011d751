/* Makes the n-th call that writes to a file or changes a folder fail, once armed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static long left = 0;    /* calls until the one that fails; 0: none does */
static int forever = 0;  /* and all after it */
static int number = 0;
static long seen = 0;

void arm(long at, int error, int all) { left = at; number = error; forever = all; seen = 0; }
long calls(void) { return seen; }

static int fails(void) {
  int before = errno;
  seen++;
  errno = before;
  if (left == 0) return 0;
  if (left > 1) { left--; return 0; }
  if (!forever) left = 0;
  errno = number;
  return 1;
}

static int is_file(int fd) {
  struct stat found;
  int before = errno, known = fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
  errno = before;
  return known && fd > 2;
}

#define NEXT(name) static __typeof__(&name) next; if (!next) next = (__typeof__(&name)) dlsym(RTLD_NEXT, #name)
#define WRITES(flags) ((flags) & (O_CREAT | O_TRUNC))

#define OPENS(name) \
  int name(const char *path, int flags, ...) { \
    NEXT(name); \
    va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
    if (WRITES(flags) && fails()) return -1; \
    return next(path, flags, mode); \
  }
OPENS(open)
OPENS(open64)

#define OPENS_AT(name) \
  int name(int at, const char *path, int flags, ...) { \
    NEXT(name); \
    va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
    if (WRITES(flags) && fails()) return -1; \
    return next(at, path, flags, mode); \
  }
OPENS_AT(openat)
OPENS_AT(openat64)

ssize_t write(int fd, const void *data, size_t size) {
  NEXT(write);
  if (is_file(fd) && fails()) return -1;
  return next(fd, data, size);
}
int rename(const char *from, const char *to) { NEXT(rename); return fails() ? -1 : next(from, to); }
int renameat2(int a, const char *from, int b, const char *to, unsigned int flags) {
  NEXT(renameat2);
  return fails() ? -1 : next(a, from, b, to, flags);
}
int mkdir(const char *path, mode_t mode) { NEXT(mkdir); return fails() ? -1 : next(path, mode); }
int ftruncate(int fd, off_t size) { NEXT(ftruncate); return fails() ? -1 : next(fd, size); }
int ftruncate64(int fd, off64_t size) { NEXT(ftruncate64); return fails() ? -1 : next(fd, size); }
int link(const char *from, const char *to) { NEXT(link); return fails() ? -1 : next(from, to); }
int symlink(const char *to, const char *at) { NEXT(symlink); return fails() ? -1 : next(to, at); }
ssize_t sendfile64(int to, int from, off64_t *at, size_t size) {
  NEXT(sendfile64);
  return fails() ? -1 : next(to, from, at, size);
}
ssize_t copy_file_range(int from, off64_t *a, int to, off64_t *b, size_t size, unsigned int flags) {
  NEXT(copy_file_range);
  return fails() ? -1 : next(from, a, to, b, size, flags);
}
