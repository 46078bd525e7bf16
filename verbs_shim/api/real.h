/* The real libibverbs, for real devices. */
#ifndef VS_REAL_H
#define VS_REAL_H

/* The function of this name and symbol version, or NULL and errno EOPNOTSUPP. The library is loaded at the first call and stays. */
void *vs_real(const char *name, const char *version);

#endif
